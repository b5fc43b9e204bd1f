"""One quorum of Ottla and Apache Kafka: either adds the other to its voters, and takes over from it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench import kafka_peer
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable
from confluent_kafka.admin import AdminClient, NewTopic
from quorum_members import CLUSTER_ID, Member, described, run, wait_until

from ottla.config.local_cluster import HOST
from ottla.runtime.net import free_ports

# Fetching the jars for the first time is part of the test.
pytestmark = [pytest.mark.maven, pytest.mark.timeout(600)]

TOOL_TIMEOUT_S = 90
# Started for seconds, beside other tests: little memory, and no time for the compiler that optimises.
SMALL_HEAP = ("-Xmx384M", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="module")
def distribution() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def started(distribution: KafkaDistribution, properties: Path) -> Iterator[None]:
    argv = distribution.argv("kafka.Kafka", str(properties), heap=SMALL_HEAP, log4j="server.properties")
    with (
        properties.with_suffix(".log").open("wb") as output,
        subprocess.Popen(argv, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def kafka_tool(distribution: KafkaDistribution, main_class: str, *arguments: str) -> str:
    done = distribution.run_tool(main_class, *arguments, timeout_s=TOOL_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ids(server: str, which: str) -> list[int]:
    return [replica["id"] for replica in described(server)[which]]


def test_either_joins_the_quorum_of_the_other(distribution: KafkaDistribution, tmp_path: Path) -> None:
    ports = free_ports(HOST, 3)
    servers = f"{HOST}:{ports[1]},{HOST}:{ports[2]}"
    kafka = tmp_path / "2.properties"
    kafka.write_text(
        "process.roles=controller\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://{HOST}:{ports[2]}\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
        f"controller.quorum.bootstrap.servers={servers}\nlog.dirs={tmp_path}/2\n"
    )
    # Apache Kafka starts with what our tool has written, and reads what a quorum begins with.
    run("kafka-storage", "format", "--no-initial-controllers", "-t", CLUSTER_ID, "-c", str(kafka))
    ottla = Member(tmp_path, 1, (ports[0], ports[1]), servers)
    ottla.format("--standalone")
    first = f"{ottla.data_dir}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    dumped = kafka_tool(
        distribution, "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", first
    )
    assert f'"voterDirectoryId":"{ottla.directory_id}"' in dumped
    assert '"kRaftVersion":1' in dumped
    assert '"featureLevel":27' in dumped
    try:
        ottla.launch()
        ottla.wait_ready()
        at = ottla.bootstrap_servers
        with started(distribution, kafka):
            wait_until(lambda: ids(at, "CurrentObservers") == [2])
            quorum = "org.apache.kafka.tools.MetadataQuorumCommand"
            adding = ("--bootstrap-server", at, "--command-config", str(kafka), "add-controller")
            assert "Added controller 2" in kafka_tool(distribution, quorum, *adding)
            assert ids(at, "CurrentVoters") == [1, 2]
            own = ("-i", "1", "-d", ottla.directory_id)
            run("kafka-metadata-quorum", "--bootstrap-server", at, "remove-controller", *own)
            wait_until(lambda: described(at)["LeaderId"] == 2)
            assert ids(at, "CurrentVoters") == [2]
            # What Apache Kafka decides alone, the broker follows; then it votes again.
            admin = AdminClient({"bootstrap.servers": at})
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
            controllers = ("--bootstrap-controller", f"{HOST}:{ports[2]}")
            files = ("--command-config", str(ottla.file))
            assert "Added controller 1" in run(
                "kafka-metadata-quorum", *controllers, *files, "add-controller"
            )
            assert ids(at, "CurrentVoters") == [1, 2]
            admin.create_topics([NewTopic("together", 1, 1)])["together"].result(30)
    finally:
        ottla.close()
