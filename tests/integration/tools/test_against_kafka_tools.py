"""Apache Kafka's own tools and ours on the same cluster of Apache Kafka: the same output.

Only white space and ids are normalised. Numbers that change from run to run (timestamps, throughput) are cut.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.maven import PeerUnavailable

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

TOOL_TIMEOUT_S = 60
FIRST = "00000000000000000000"
TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "topics": f"{TOOLS}TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": f"{TOOLS}GetOffsetShell",
    "delete-records": f"{TOOLS}DeleteRecordsCommand",
    "log-dirs": f"{TOOLS}LogDirsCommand",
    "cluster": f"{TOOLS}ClusterTool",
    "features": f"{TOOLS}FeatureCommand",
    "metadata-quorum": f"{TOOLS}MetadataQuorumCommand",
    "console-consumer": f"{TOOLS}consumer.ConsoleConsumer",
    "consumer-groups": f"{TOOLS}consumer.group.ConsumerGroupCommand",
    "dump-log": f"{TOOLS}DumpLogSegments",
}


@dataclass(frozen=True)
class Cluster:
    distribution: KafkaDistribution
    bootstrap_servers: str
    data_dir: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("kafka") / "data"
    with started(ApacheKafka(distribution), str(directory), directory.parent / "kafka.out") as kafka:
        yield Cluster(distribution, f"127.0.0.1:{kafka.port}", directory)


@pytest.fixture
def both(cluster: Cluster, tool: Any) -> Any:
    """Runs both tools with the same arguments; what they print, normalised."""

    def run(name: str, *arguments: str, server: bool = True) -> tuple[list[str], list[str]]:
        place = ("--bootstrap-server", cluster.bootstrap_servers) if server else ()
        words = (*arguments, *place) if name not in {"features", "metadata-quorum"} else (*place, *arguments)
        theirs = _theirs(cluster, name, *words)
        ours = tool(name, *words)
        assert ours.status == theirs.returncode, ours.err
        return _normal(ours.out), _normal(theirs.stdout)

    return run


def _theirs(cluster: Cluster, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cluster.distribution.run_tool(CLASSES[name], *arguments, timeout_s=TOOL_TIMEOUT_S)


def _normal(text: str) -> list[str]:
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


@pytest.fixture
def filled(cluster: Cluster, tool: Any) -> str:
    """A topic with six records in two partitions, and a group that has read some."""
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    tool("topics", "--create", "--if-not-exists", "--topic", "filled", "--partitions", "2", *server,
         "--config", "retention.ms=86400000", "--config", "cleanup.policy=compact")  # fmt: skip
    if tool("get-offsets", "--topic", "filled", *server).out == "filled:0:0\nfilled:1:0\n":
        lines = "".join(f"k{number}\tv{number}\n" for number in range(6))
        reading = ("--reader-property", "parse.key=true")
        assert tool("console-producer", "--topic", "filled", *reading, *server, stdin=lines).status == 0
        group = ("--group", "readers", "--from-beginning", "--max-messages", "6")
        assert tool("console-consumer", "--topic", "filled", *group, *server).status == 0
    return "filled"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("topics", ("--list",)),
        ("topics", ("--describe", "--topic", "filled")),
        ("topics", ("--describe", "--topic", "filled", "--at-min-isr-partitions")),
        ("topics", ("--describe", "--topics-with-overrides", "--exclude-internal")),
        ("configs", ("--describe", "--topic", "filled")),
        ("configs", ("--describe", "--topic", "filled", "--all")),
        ("configs", ("--describe", "--topic", "missing")),
        ("configs", ("--describe", "--entity-type", "brokers")),
        ("get-offsets", ("--topic", "filled")),
        ("get-offsets", ("--topic-partitions", "filled:1-,filled:0", "--time", "earliest")),
        ("cluster", ("cluster-id",)),
        ("cluster", ("list-endpoints",)),
        ("features", ("describe",)),
        ("consumer-groups", ("--list",)),
        ("consumer-groups", ("--list", "--state")),
        ("consumer-groups", ("--describe", "--group", "readers")),
        ("consumer-groups", ("--describe", "--group", "readers", "--state")),
        ("consumer-groups", ("--reset-offsets", "--group", "readers", "--topic", "filled", "--to-earliest")),
        (
            "consumer-groups",
            ("--reset-offsets", "--group", "readers", "--topic", "filled", "--shift-by", "-1", "--export"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
def test_same_output(both: Any, filled: str, name: str, arguments: tuple[str, ...]) -> None:
    ours, theirs = both(name, *arguments)
    if name == "features":
        # Each background write of the controller moves the epoch on.
        ours, theirs = ([line.rpartition(" Epoch:")[0] for line in lines] for lines in (ours, theirs))
    # Kafka keeps some of these in hash maps.
    assert sorted(ours) == sorted(theirs)
    assert ours


def test_same_quorum(both: Any) -> None:
    for form in ("--status", "--replication"):
        ours, theirs = both("metadata-quorum", "describe", form)
        varying = re.compile(r"\d{13}|HighWatermark: \d+|^(\d+ \S+) \d+")
        assert [varying.sub("#", line) for line in ours] == [varying.sub("#", line) for line in theirs]


def test_same_log_directories(both: Any, filled: str) -> None:
    import json

    ours, theirs = both("log-dirs", "--describe", "--topic-list", filled)
    assert ours[:2] == theirs[:2]

    def held(line: str) -> Any:
        (broker,) = json.loads(line)["brokers"]
        (directory,) = broker["logDirs"]
        partitions = sorted(directory["partitions"], key=lambda item: item["partition"])
        return broker["broker"], directory["logDir"], directory["error"], partitions

    assert held(ours[2]) == held(theirs[2])


def test_same_records(both: Any, filled: str) -> None:
    properties = ("print.key", "print.offset", "print.partition", "print.timestamp", "print.headers")
    words = [word for name in properties for word in ("--formatter-property", f"{name}=true")]
    place = ("--topic", filled, "--partition", "1", "--offset", "earliest", "--timeout-ms", "2000")
    ours, theirs = both("console-consumer", *place, *words)
    assert ours == theirs
    assert ours


def test_same_dumps(both: Any, cluster: Cluster, filled: str) -> None:
    for number in (0, 1):
        log = f"{cluster.data_dir}/{filled}-{number}/{FIRST}.log"
        for more in ((), ("--print-data-log",), ("--deep-iteration",)):
            ours, theirs = both("dump-log", "--files", log, *more, server=False)
            assert ours == theirs
            assert len(ours) > 2


def test_same_dump_of_the_metadata_log(both: Any, cluster: Cluster, filled: str) -> None:
    log = f"{cluster.data_dir}/__cluster_metadata-0/{FIRST}.log"
    # Up to where the log stood when it was first looked at: it grows all the time.
    size = str(Path(log).stat().st_size)
    arguments = ("--cluster-metadata-decoder", "--max-bytes", size, "--files", log)
    ours, theirs = both("dump-log", *arguments, server=False)
    assert len(ours) == len(theirs)
    # Records of a newer metadata.version than Ottla's are told so instead of shown.
    newer = re.compile(
        r"payload: Error at \d+, skipping. metadata record \w+ has version \d+; this version reads"
    )
    pairs = [pair for pair in zip(ours, theirs, strict=True) if not newer.search(pair[0])]
    assert len(pairs) > len(ours) // 2
    for mine, other in pairs:
        assert mine == other


def test_same_dump_of_offsets(both: Any, cluster: Cluster, filled: str) -> None:
    logs = sorted(cluster.data_dir.glob(f"__consumer_offsets-*/{FIRST}.log"))
    log = next(path for path in logs if path.stat().st_size)
    ours, theirs = both("dump-log", "--offsets-decoder", "--files", str(log), server=False)
    assert [line for line in ours if '"type":"1"' in line] == [
        line for line in theirs if '"type":"1"' in line
    ]


def test_records_per_second_as_a_ratio_to_kafkas_tool(
    cluster: Cluster, tool: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    shape = ("--topic", "load", "--num-records", "300000", "--record-size", "100", "--throughput", "-1")
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    main_class = f"{TOOLS}ProducerPerformance"
    rates = []
    tool("producer-perf-test", *shape, *server)
    theirs = cluster.distribution.run_tool(main_class, *shape, *server, timeout_s=TOOL_TIMEOUT_S)
    ours = tool("producer-perf-test", *shape, *server)
    for output in (ours.out, theirs.stdout):
        found = re.search(r"300000 records sent, ([\d.]+) records/sec", output)
        assert found is not None, output
        rates.append(float(found[1]))
    with capfd.disabled():
        print(f"\nkafka-producer-perf-test: {rates[0]:,.0f} records/s, {rates[0] / rates[1]:.2f} of Kafka's")
