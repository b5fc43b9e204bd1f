"""The cluster client against live brokers: finding, retrying, reading, and saying what is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from bench import kafka_peer
from bench.brokers import RunningBroker, free_port, started
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable

from ottla.client.cluster import EARLIEST, GROUP, LATEST, ClusterClient
from ottla.client.errors import ClusterUnreachable, error_for
from ottla.client.metadata import ClusterInfo
from ottla.client.peer import AuthenticationFailed, PeerUnusable
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import BrokerProcess, InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, OffsetOutOfRange, UnknownTopicOrPartition

T = TypeVar("T")
USER = "reader"
PASSWORD = 'with "quotes", commas'


def run(
    bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]], properties: dict[str, str] | None = None
) -> T:
    async def main() -> T:
        async with ClusterClient(AsyncioNetwork(), bootstrap, properties) as cluster:
            return await work(cluster)

    return asyncio.run(main())


async def create(cluster: ClusterClient, topic: str, partitions: int = 1) -> None:
    def check(answer: object) -> None:
        (row,) = answer.topics  # type: ignore[attr-defined]
        if row.error_code != ErrorCode.none:
            raise error_for(row.error_code, row.error_message, topic)

    row = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    await cluster.ask_controller(ApiKey.CREATE_TOPICS, {"topics": [row], "timeout": 10_000}, check)


async def produce(cluster: ClusterClient, topic: str, partition: int, records: Sequence[Record]) -> None:
    def check(answer: object) -> None:
        row = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        if row.error_code != ErrorCode.none:
            raise error_for(row.error_code, row.error_message, topic)

    rows = [{"index": partition, "records": encode_batch(records)}]
    await cluster.ask(
        lambda: cluster.leader(topic, partition),
        ApiKey.PRODUCE,
        {"acks": -1, "timeout": 10_000, "topic_data": [{"name": topic, "partition_data": rows}]},
        version_max=12,
        check=check,
    )


async def exercise(cluster: ClusterClient, topic: str) -> None:
    await create(cluster, topic, 3)
    info = (await cluster.topics([topic, "not-there"]))[topic]
    assert sorted(info.partitions) == [0, 1, 2]
    assert topic in await cluster.topics_matching(f"{topic[:-1]}.")
    assert topic not in await cluster.topics_matching(topic[:-1])
    records = [Record(b"k%d" % n, b"v%d" % n, 1_000 + n) for n in range(10)]
    await produce(cluster, topic, 1, records)
    at = await cluster.list_offsets({(topic, 1): EARLIEST, (topic, 0): LATEST})
    assert (at[topic, 1].offset, at[topic, 0].offset) == (0, 0)
    assert (await cluster.list_offsets({(topic, 1): LATEST}))[topic, 1].offset == 10
    assert (await cluster.list_offsets({(topic, 1): 1_004}))[topic, 1].offset == 4
    assert (await cluster.list_offsets({(topic, 1): 9_999}))[topic, 1].offset == -1
    fetched = await cluster.fetch(topic, 1, 4, read_committed=True)
    assert fetched.high_watermark == 10
    batches = [fetched.records[at : at + header.size] for at, header in iter_headers(fetched.records)]
    values = [record.value for batch in batches for record in iter_records(batch)]
    assert values == [record.value for record in records]
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-1 at offset 99"):
        await cluster.fetch(topic, 1, 99)
    coordinator = await cluster.retried(lambda: cluster.coordinator(GROUP, "some-group"))
    assert not coordinator.is_lost
    assert (await cluster.cluster()).brokers


def test_a_cluster_is_found_described_and_read(ottla_broker_session: InProcessBroker) -> None:
    run(ottla_broker_session.bootstrap_servers, lambda cluster: exercise(cluster, "client-basics"))


def test_answers_larger_than_the_scratch_buffer_arrive_whole(ottla_broker_session: InProcessBroker) -> None:
    async def work(cluster: ClusterClient) -> None:
        await create(cluster, "client-large")
        values = [bytes([n]) * 300_000 for n in range(3)]
        for value in values:
            await produce(cluster, "client-large", 0, [Record(None, value, 1)])
        fetches = [cluster.fetch("client-large", 0, n) for n in (0, 1, 2, 0)]
        for n, fetched in zip((0, 1, 2, 0), await asyncio.gather(*fetches), strict=True):
            batches = [fetched.records[at : at + head.size] for at, head in iter_headers(fetched.records)]
            assert [record.value for batch in batches for record in iter_records(batch)] == values[n:]

    run(ottla_broker_session.bootstrap_servers, work)


def test_an_address_without_a_broker_is_passed_over(ottla_broker_session: InProcessBroker) -> None:
    bootstrap = f"127.0.0.1:{free_port()},{ottla_broker_session.bootstrap_servers}"
    assert run(bootstrap, lambda cluster: cluster.cluster()).cluster_id == ottla_broker_session.cluster_id


def test_an_unreachable_cluster_is_named_with_what_failed() -> None:
    ports = free_port(), free_port()
    properties = {"socket.connection.setup.timeout.ms": "300"}
    with pytest.raises(ClusterUnreachable, match=rf"{ports[0]} \(Connection refused\); .*{ports[1]} "):
        run(",".join(f"127.0.0.1:{port}" for port in ports), lambda c: c.cluster(), properties)


def test_an_address_that_a_broker_gives_in_vain_is_named_at_once() -> None:
    """The usual mistake with advertised.listeners; only brokers that were there are waited for longer."""
    port = free_port()
    properties = {"socket.connection.setup.timeout.ms": "300"}
    with (
        InProcessBroker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as broker,
        pytest.raises(ClusterUnreachable, match=rf"{port} \(Connection refused\)") as unreachable,
    ):
        asked = {"topics": None}
        run(broker.bootstrap_servers, lambda c: c.ask(1, ApiKey.DESCRIBE_LOG_DIRS, asked), properties)
    assert list(unreachable.value.failures) == [f"127.0.0.1:{port}"]


def test_a_listener_that_hangs_up_is_asked_again() -> None:
    """As the port of a container does whose broker is not up yet."""

    async def main() -> None:
        hung_up = 0

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal hung_up
            hung_up += 1
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        properties = {"socket.connection.setup.timeout.ms": "300"}
        async with ClusterClient(AsyncioNetwork(), bootstrap, properties) as cluster:
            with pytest.raises(ClusterUnreachable, match=r"security\.protocol may not be the one"):
                await cluster.cluster()
        server.close()
        assert hung_up > 1

    asyncio.run(main())


def test_a_topic_that_does_not_exist_is_named(ottla_broker_session: InProcessBroker) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
        run(ottla_broker_session.bootstrap_servers, lambda c: c.list_offsets({("nowhere", 0): LATEST}))


def test_a_broker_that_comes_back_is_asked_again() -> None:
    with BrokerProcess() as broker:

        async def work(cluster: ClusterClient) -> None:
            await create(cluster, "client-restart")
            await produce(cluster, "client-restart", 0, [Record(None, b"a", 1)])
            broker.kill9()
            asked = asyncio.create_task(cluster.fetch("client-restart", 0, 0))
            await asyncio.to_thread(broker.start)
            assert (await asked).high_watermark == 1

        run(broker.bootstrap_servers, work)


def test_a_coordinator_that_is_missing_in_the_metadata_is_asked_all_the_same(
    ottla_broker_session: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers learn of a coordinator's broker one after the other."""
    monkeypatch.setattr("ottla.client.cluster.read_cluster", lambda answer: ClusterInfo(None, -1, {}))

    async def work(cluster: ClusterClient) -> None:
        values = {"groups": ["nobody"], "include_authorized_operations": False}
        answer = await cluster.ask_coordinator(GROUP, "nobody", ApiKey.DESCRIBE_GROUPS, values)
        assert [group.group_id for group in answer.groups] == ["nobody"]

    run(ottla_broker_session.bootstrap_servers, work)


def tls_context(directory: Path) -> tuple[ssl.SSLContext, str]:
    """A server's side with a certificate of its own for 127.0.0.1, and the path of that certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, so there is no certificate to test with")
    certificate, key = str(directory / "certificate.pem"), str(directory / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


def test_tls_is_spoken_and_the_certificate_checked(
    ottla_broker_session: InProcessBroker, tmp_path: Path
) -> None:
    """Through a relay that ends TLS in front of the broker."""
    context, certificate = tls_context(tmp_path)
    port = int(ottla_broker_session.bootstrap_servers.rpartition(":")[2])

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer), return_exceptions=True)

    async def cluster_id(bootstrap: str, properties: dict[str, str]) -> str | None:
        async with ClusterClient(AsyncioNetwork(), bootstrap, properties) as cluster:
            return (await cluster.cluster()).cluster_id

    async def main() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        trusting = {"security.protocol": "SSL", "ssl.truststore.location": certificate}
        assert await cluster_id(bootstrap, trusting) == ottla_broker_session.cluster_id
        with pytest.raises(PeerUnusable, match="TLS failed: CERTIFICATE_VERIFY_FAILED"):
            await cluster_id(bootstrap, {"security.protocol": "SSL"})
        server.close()

    asyncio.run(main())


class KafkaWithSasl(ApacheKafka):
    """Apache Kafka with a second listener, SASL_PLAINTEXT, that takes PLAIN and SCRAM."""

    sasl_port = 0

    def prepare(self, port: int, data_dir: str) -> None:
        super().prepare(port, data_dir)
        type(self).sasl_port = free_port()
        path = Path(f"{data_dir}.properties")
        text = path.read_text()
        listener = "listener.name.sasl_plaintext"
        security = "org.apache.kafka.common.security"
        for line in text.splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                text += f"{line},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}\n"
            if line.startswith("listener.security.protocol.map="):
                text += f"{line},SASL_PLAINTEXT:SASL_PLAINTEXT\n"
        text += "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
        quoted = PASSWORD.replace('"', '\\\\"')
        plain = f'{security}.plain.PlainLoginModule required user_{USER}="{quoted}";'
        text += f"{listener}.plain.sasl.jaas.config={plain}\n"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            scram = f"{security}.scram.ScramLoginModule required;"
            text += f"{listener}.{mechanism}.sasl.jaas.config={scram}\n"
        path.write_text(text)


async def add_scram_user(cluster: ClusterClient) -> None:
    salt, iterations = b"salt" * 8, 4096
    rows = [
        {
            "name": USER,
            "mechanism": number,
            "iterations": iterations,
            "salt": salt,
            "salted_password": hashlib.pbkdf2_hmac(name, PASSWORD.encode(), salt, iterations),
        }
        for number, name in ((1, "sha256"), (2, "sha512"))
    ]
    for row in rows:  # Kafka takes one change of a user per request
        answer = await cluster.ask_controller(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"upsertions": [row]})
        assert answer.results[0].error_code == ErrorCode.none, answer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("kafka")
    with started(KafkaWithSasl(distribution), str(home / "data"), home / "kafka.out") as broker:
        run(f"127.0.0.1:{broker.port}", add_scram_user)
        yield broker


@pytest.mark.maven
@pytest.mark.slow
def test_apache_kafka_is_read_the_same_way(kafka: RunningBroker) -> None:
    run(f"127.0.0.1:{kafka.port}", lambda cluster: exercise(cluster, "client-kafka"))


@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_apache_kafka_lets_in_who_proves_who_they_are(kafka: RunningBroker, mechanism: str) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    bootstrap = f"127.0.0.1:{KafkaWithSasl.sasl_port}"
    assert run(bootstrap, lambda cluster: cluster.cluster(), properties).cluster_id
    with pytest.raises(AuthenticationFailed, match=f"{mechanism}"):
        run(bootstrap, lambda cluster: cluster.cluster(), {**properties, "sasl.password": "wrong"})
    refused = {**properties, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "t"}
    with pytest.raises(AuthenticationFailed, match=r"it takes .*PLAIN"):
        run(bootstrap, lambda cluster: cluster.cluster(), refused)
