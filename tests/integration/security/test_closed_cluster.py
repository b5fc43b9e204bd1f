"""Three brokers of which all listeners are closed, as `ottla certs create` lays them out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.cli.main import main
from ottla.client.jaas import jaas_options
from ottla.config import parse_properties
from ottla.testing.cluster import BrokerCluster
from ottla.testing.process import BrokerProcess

WORD_COUNT = Path(__file__).parents[3] / "examples/streams/word_count.py"

# One cluster for all, in the order they stand in.
pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("closed-cluster")]


def ottla(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("closed")
    created = ottla("certs", "create", "--dir", str(home))
    assert created.returncode == 0, created.stderr
    assert oct((home / "broker.pem").stat().st_mode)[-3:] == "600"
    return home


@pytest.fixture(scope="module")
def cluster(made: Path) -> Iterator[BrokerCluster]:
    settings: dict[str, Any] = dict(parse_properties((made / "server.properties").read_text()))
    settings["delegation.token.secret.key"] = "known to all brokers"
    with BrokerCluster(settings, relayed=False) as started:
        yield started


def settings_of(path: Path, cluster: BrokerCluster) -> dict[str, Any]:
    given = parse_properties(path.read_text())
    options = jaas_options(given["sasl.jaas.config"])
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": given["ssl.truststore.location"],
        "sasl.mechanism": given["sasl.mechanism"],
        "sasl.username": options["username"],
        "sasl.password": options["password"],
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def alice(made: Path, cluster: BrokerCluster) -> dict[str, Any]:
    added = ottla(
        "configs", "--bootstrap-server", cluster.bootstrap_servers, "--command-config",
        str(made / "admin.properties"), "--alter", "--entity-type", "users", "--entity-name", "alice",
        "--add-config", "SCRAM-SHA-512=[password=wonderland]",
    )  # fmt: skip
    assert added.stdout == "Completed updating config for user alice.\n", added.stderr
    return settings_of(made / "client.properties", cluster)


def test_records_are_replicated_and_survive_a_broker(
    cluster: BrokerCluster, alice: dict[str, Any], made: Path
) -> None:
    admin = AdminClient(alice)
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(20)
    producer = Producer({**alice, "acks": "all"})
    refused = []
    for number in range(300):
        producer.produce("orders", str(number), on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert refused.count(None) == 300
    for partition in range(3):
        cluster.wait_in_sync("orders", 3, partition)
    cluster.controller().kill9()
    consumer = Consumer({**alice, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    seen = set()
    deadline = time.monotonic() + 60
    while len(seen) < 300 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())
    consumer.close()
    assert len(seen) == 300
    # Credentials are known to whoever leads the quorum now.
    admin = AdminClient(settings_of(made / "admin.properties", cluster))
    assert list(admin.describe_user_scram_credentials().result(20)) == ["alice"]
    cluster.start()
    for partition in range(3):
        cluster.wait_in_sync("orders", 3, partition)


def test_the_first_records_of_a_topic_come_in_a_transaction(alice: dict[str, Any]) -> None:
    admin = AdminClient(alice)
    # Whoever writes to a topic that nobody made gets one partition, here as anywhere.
    admin.create_topics([NewTopic("transacted", 3, 3)])["transacted"].result(20)
    producer = Producer({**alice, "transactional.id": "closed"})
    producer.init_transactions(30)
    producer.begin_transaction()
    refused: list[object] = []
    for partition in range(3):
        producer.produce(
            "transacted", b"first", partition=partition, on_delivery=lambda error, _: refused.append(error)
        )
    producer.flush(30)
    assert [error and error.name() for error in refused] == [None] * 3
    producer.commit_transaction(30)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(360)
def test_streams_count_words_with_the_same_file(
    cluster: BrokerCluster, alice: dict[str, Any], made: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
    admin = AdminClient(alice)
    topics = [NewTopic(name, 2, 3) for name in ("lines", "word-counts")]
    for created in admin.create_topics(topics).values():
        created.result(60)
    lines = ["all streams lead to Kafka", "hello Kafka streams"] * 10
    producer = Producer({**alice, "acks": "all"})
    for line in lines:
        producer.produce("lines", line)
    assert producer.flush(60) == 0

    def run(config: str) -> subprocess.CompletedProcess[str]:
        return ottla(
            "run", str(WORD_COUNT), "--bootstrap-server", cluster.bootstrap_servers, "--command-config",
            config, "--once", "--json", "--state-dir", str(tmp_path / "state"), timeout_s=240,
        )  # fmt: skip

    guessing = tmp_path / "guessing.properties"
    guessing.write_text((made / "client.properties").read_text().replace("wonderland", "a guess"))
    refused = run(str(guessing))
    assert refused.returncode == 1 and "Authentication failed" in refused.stderr, refused.stderr
    done = run(str(made / "client.properties"))
    assert done.returncode == 0, done.stderr

    expected = Counter(word for line in lines for word in line.lower().split())
    consumer = Consumer({**alice, "group.id": "word-readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["word-counts"])
    counts: dict[str, int] = {}
    deadline = time.monotonic() + 60
    while counts != expected and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            counts[message.key().decode()] = int.from_bytes(message.value(), "big")
    consumer.close()
    assert counts == expected


def test_who_is_not_known_stays_outside(cluster: BrokerCluster, alice: dict[str, Any]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({**alice, "sasl.password": "a guess"}).list_topics(timeout=1)
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}).list_topics(timeout=1)


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_each_broker_refuses_certificates_that_it_does_not_have(
    cluster: BrokerCluster, made: Path, node_id: int
) -> None:
    """Also those that are not the controller, which stores the settings of all."""
    admin = AdminClient(settings_of(made / "admin.properties", cluster))
    entry = ConfigEntry("ssl.keystore.location", "/none.pem", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    with pytest.raises(KafkaException, match=r"ssl\.keystore\.location=/none\.pem: no certificate"):
        admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_broker_with_a_certificate_of_others_does_not_join(
    cluster: BrokerCluster, made: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert ottla("certs", "create", "--dir", str(other)).returncode == 0
    written = Path(cluster[1].data_dir).parent / "server.properties"
    stranger = parse_properties(written.read_text())
    stranger |= {
        "node.id": "9",
        "process.roles": "broker",
        "listeners": "SASL_SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "initial.broker.registration.timeout.ms": "2000",
        # From another authority, so that controllers do not trust it.
        "ssl.keystore.location": str(other / "broker.pem"),
    }
    formatted = tmp_path / "server.properties"
    formatted.write_text("".join(f"{name}={value}\n" for name, value in stranger.items()))
    prepared = ottla("storage", "format", "-t", cluster.cluster_id, "-c", str(formatted))
    assert prepared.returncode == 0, prepared.stderr

    class Stranger(BrokerProcess):
        def _arguments(self) -> list[str]:
            return [str(formatted)]

    with pytest.raises(RuntimeError, match="could not join its cluster") as refused:
        Stranger(data_dir=str(tmp_path / "data")).start()
    assert "a certificate that it trusts (ssl.keystore.location)" in str(refused.value)
    admin = AdminClient(settings_of(made / "admin.properties", cluster))
    assert set(admin.list_topics(timeout=20).brokers) == {1, 2, 3}


def test_a_delegation_token_opens_for_a_while_what_its_owner_may(
    cluster: BrokerCluster, made: Path, alice: dict[str, Any], tmp_path: Path
) -> None:
    admin = AdminClient(alice)
    admin.create_topics([NewTopic("seen-with-a-token", 1, 3)])["seen-with-a-token"].result(20)

    def tokens(*arguments: str, config: str = "client.properties") -> subprocess.CompletedProcess[str]:
        place = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(made / config))
        return ottla("delegation-tokens", *place, *arguments)

    created = tokens(
        "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:admin", "--json"
    )
    assert created.returncode == 0, created.stderr
    token = json.loads(created.stdout)
    assert (token["owner"], token["renewers"]) == ("User:alice", ["User:admin"])

    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token["tokenId"]}" password="{token["hmac"]}" tokenauth="true";'
    )
    with_token = tmp_path / "token.properties"
    given = parse_properties((made / "client.properties").read_text()) | {"sasl.jaas.config": line}
    with_token.write_text("".join(f"{name}={value}\n" for name, value in given.items()))

    def lists_topics() -> subprocess.CompletedProcess[str]:
        # Each broker learns of the token when it is told of the metadata.
        return ottla("topics", "--list", "--bootstrap-server", cluster.bootstrap_servers,
                     "--command-config", str(with_token))  # fmt: skip

    deadline = time.monotonic() + 20
    while (listed := lists_topics()).returncode:
        assert time.monotonic() < deadline, listed.stderr
    assert "seen-with-a-token" in listed.stdout
    # Not for more tokens.
    place = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(with_token))
    refused = ottla("delegation-tokens", *place, "--describe")
    assert refused.returncode == 1
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.stderr.upper()

    described = tokens("--describe", "--owner-principal", "User:alice")
    assert "Total number of tokens : 1" in described.stdout
    assert token["hmac"] in described.stdout
    renewed = tokens("--renew", "--hmac", token["hmac"], "--renew-time-period", "60000",
                     config="admin.properties")  # fmt: skip
    assert "Completed renew operation. New expiry date : " in renewed.stdout, renewed.stderr
    expired = tokens("--expire", "--hmac", token["hmac"], "--expiry-time-period", "-1")
    assert "Completed expire operation." in expired.stdout, expired.stderr
    deadline = time.monotonic() + 20
    while lists_topics().returncode == 0:
        assert time.monotonic() < deadline


TOOLS = {
    "acls": "--list",
    "broker-api-versions": "",
    "client-metrics": "--describe",
    "cluster": "cluster-id",
    "configs": "--describe --entity-type brokers --entity-name 1",
    "console-consumer": "--topic tooled --from-beginning --max-messages 1",
    "console-producer": "--topic tooled",
    "consumer-groups": "--list",
    "consumer-perf-test": "--topic tooled --num-records 1",
    "delegation-tokens": "--describe",
    "features": "describe",
    "get-offsets": "--topic tooled",
    "log-dirs": "--describe",
    "metadata-quorum": "describe --status",
    "producer-perf-test": "--topic tooled --num-records 5 --record-size 10 --throughput -1",
    "reassign-partitions": "--list",
    "topics": "--describe --topic tooled",
    "transactions": "list",
    "verifiable-producer": "--topic tooled --max-messages 2",
}


def test_every_tool_gets_in(
    cluster: BrokerCluster,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = ("--command-config", str(made / "admin.properties"))
    where = ("--bootstrap-server", cluster.bootstrap_servers, *config)
    admin = AdminClient(settings_of(made / "admin.properties", cluster))
    admin.create_topics([NewTopic("tooled", 1, 3)])["tooled"].result(60)
    (tmp_path / "line").write_text("a line\n")
    failures = {}
    # First those that write.
    for name in sorted(TOOLS, key=lambda name: ("producer" not in name, name)):
        given = TOOLS[name].split()
        # Its subcommands come first, those of others behind such options.
        at = 1 if name == "cluster" else 0
        with (tmp_path / "line").open() as line:
            monkeypatch.setattr(sys, "stdin", line)
            status = main([name, *given[:at], *where, *given[at:]])
        shown = capsys.readouterr()
        if status:
            failures[name] = shown.err
    # Nobody has rules here, as the tool says.
    assert "No Authorizer is configured" in failures.pop("acls")
    assert not failures
