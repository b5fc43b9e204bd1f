"""Apache Kafka's own tools and ours on the same cluster of Apache Kafka: the same output.

Only white space and ids are normalised. Numbers that change from run to run (timestamps, throughput) are cut.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import CLASSES, Cluster, normal

from ottla.cli.framework import catalogue
from ottla.cli.framework.run import INTERRUPTED

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(300)]

FIRST = "00000000000000000000"
# Of Kafka's parts that are not here: share groups, tiered storage, controllers apart from brokers.
NOT_HERE = {
    "configs": {"--bootstrap-controller"},
    "dump-log": {"--remote-log-metadata-decoder", "--share-group-state-decoder"},
}


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
        ("broker-api-versions", ()),
        ("features", ("describe",)),
        ("features", ("upgrade", "--release-version", "4.3", "--dry-run")),
        ("features", ("downgrade", "--feature", "metadata.version=20", "--dry-run")),
        ("features", ("disable", "--feature", "missing", "--dry-run")),
        ("features", ("version-mapping", "--release-version", "4.1")),
        ("features", ("version-mapping", "--release-version", "4.0-IV0")),
        ("features", ("feature-dependencies", "--feature", "eligible.leader.replicas.version=1")),
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


@pytest.mark.parametrize("name", CLASSES)
def test_every_option_of_kafkas_is_known(cluster: Cluster, name: str) -> None:
    if name == "metadata-shell":
        pytest.skip("a jar of its own, compared elsewhere")
    done = cluster.theirs(name, "--help")
    listed = re.findall(r"(?m)^\s{0,4}(?:-\w+(?: [A-Z_]+)?, )?(--[A-Za-z][\w.-]*)", done.stdout + done.stderr)
    assert listed or name == "e2e-latency"
    tool = catalogue.load(name)
    options = [*tool.options, *(option for command in tool.commands for option in command.options)]
    known = {f"--{option.name}" for option in options} | {"--help", "--version"}
    assert set(listed) - known - NOT_HERE.get(name, set()) == set()


def test_same_quotas_and_credentials(both: Any, cluster: Cluster, tool: Any) -> None:
    def configs(*words: str) -> Any:
        return tool("configs", "--bootstrap-server", cluster.bootstrap_servers, *words)

    for words in (
        ("--user", "ann", "--add-config", "producer_byte_rate=20000000,request_percentage=50.5"),
        ("--user", "ann", "--client", "till", "--add-config", "consumer_byte_rate=1024"),
        ("--user-defaults", "--add-config", "producer_byte_rate=7"),
        ("--ip", "10.1.2.3", "--add-config", "connection_creation_rate=10"),
        ("--user", "ann", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
        ("--user", "ann", "--add-config", "SCRAM-SHA-512=[password=secret]"),
        ("--user", "ann", "--delete-config", "SCRAM-SHA-512"),
        ("--user", "ann", "--delete-config", "request_percentage"),
    ):
        altered = configs("--alter", *words)
        assert altered.status == 0, altered.err
    for words in (
        ("--entity-type", "users"),
        ("--entity-type", "users", "--entity-name", "ann"),
        ("--user", "ann", "--client", "till"),
        ("--entity-type", "users", "--entity-type", "clients"),
        ("--user-defaults",),
        ("--entity-type", "ips"),
        ("--user", "missing"),
    ):
        ours, theirs = both("configs", "--describe", *words)
        assert ours == theirs
        assert ours or "missing" in words
    refused = configs("--alter", "--user", "ann", "--delete-config", "request_percentage")
    assert "Invalid config(s): request_percentage" in refused.err


def test_same_client_metrics(both: Any, cluster: Cluster, tool: Any) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    settings = ("--metrics", "org.apache.kafka.producer.", "--interval", "60000", "--match", "client_id=a.*")
    altered = tool("client-metrics", "--alter", "--name", "writers", *settings, *server)
    assert altered.out == "Altered client metrics config for writers.\n"
    for words in (("--list",), ("--describe",), ("--describe", "--name", "missing")):
        ours, theirs = both("client-metrics", *words)
        # Kafka keeps settings in a hash map.
        assert sorted(ours) == sorted(theirs)
        assert ours
    ours, theirs = both("client-metrics", "--delete", "--name", "writers")
    assert ours == theirs == ["Deleted client metrics config for writers."]


def test_same_moves_and_elections(both: Any, filled: str, tmp_path: Path) -> None:
    topics, plan, nowhere = tmp_path / "topics.json", tmp_path / "plan.json", tmp_path / "nowhere.json"
    topics.write_text('{"topics": [{"topic": "filled"}], "version": 1}')
    partitions = ({"topic": "filled", "partition": number, "replicas": [1]} for number in range(2))
    plan.write_text(json.dumps({"version": 1, "partitions": list(partitions)}))
    nowhere.write_text('{"version": 1, "partitions": [{"topic": "filled", "partition": 9, "replicas": [1]}]}')
    chosen = ("--reassignment-json-file", str(plan))
    for words in (
        ("--list",),
        ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"),
        ("--execute", *chosen),
        ("--execute", *chosen, "--throttle", "1000000"),
        ("--verify", *chosen, "--preserve-throttles"),
        ("--verify", *chosen),
        ("--cancel", *chosen, "--preserve-throttles"),
    ):
        ours, theirs = both("reassign-partitions", *words)
        assert ours == theirs
        assert ours
    ours, theirs = both(
        "leader-election", "--election-type", "preferred", "--topic", "filled", "--partition", "0"
    )
    assert ours == theirs == ["Valid replica already elected for partitions filled-0"]


def test_replicas_of_kafka_are_verified(cluster: Cluster, filled: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "replica-verification", "--topics-include", filled]
    command += ["--broker-list", cluster.bootstrap_servers, "--time", "-2", "--report-interval-ms", "1"]
    command += ["--max-wait-ms", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "verification process is started" in running.stdout.readline()
        for line in running.stdout:
            if "max lag is 0 for partition filled-" in line:
                break
        running.send_signal(signal.SIGINT)
    assert running.returncode == INTERRUPTED


def test_same_storage(cluster: Cluster, tool: Any, tmp_path: Path) -> None:
    def told(place: str, command: str, run: Any) -> list[str]:
        directory = tmp_path / place
        directory.mkdir(exist_ok=True)
        config = directory / "server.properties"
        config.write_text(
            "process.roles=broker,controller\nnode.id=5\ncontroller.quorum.bootstrap.servers=localhost:1\n"
            "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n"
            f"controller.listener.names=CONTROLLER\nlog.dirs={directory}/a,{directory}/b\n"
        )
        done = run("storage", *command.split(), "-c", str(config))
        text = done.stdout + done.stderr if hasattr(done, "stdout") else done.out + done.err
        lines = [line.removeprefix("ottla storage: ") for line in normal(text.replace(str(directory), "@"))]
        status = done.returncode if hasattr(done, "returncode") else done.status
        # Kafka shows its records of features, too; ids of directories are drawn.
        shown = [line for line in lines if not line.startswith("Bootstrap metadata:")]
        # Kafka takes directories in the order of their hashes, and complains of the first.
        shown = sorted(re.sub(r"@/\w is already", "@/? is already", line) for line in shown)
        return [f"{status}", *(re.sub(r"directory.id=[\w-]+", "directory.id=#", line) for line in shown)]

    formatting = "format --standalone -t 4L6g3nShT-eMCtK--X86sw -r 4.1"
    for command in ("info", formatting, "info", formatting, f"{formatting} --ignore-formatted"):
        ours, theirs = told("ours", command, tool), told("theirs", command, cluster.theirs)
        assert ours == theirs
        assert len(ours) > 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("version-mapping", "--release-version", "4.2"),
        ("feature-dependencies", "--feature", "transaction.version=2", "--feature", "metadata.version=25"),
    ],
    ids="_".join,
)
def test_same_releases(both: Any, arguments: tuple[str, ...]) -> None:
    ours, theirs = both("storage", *arguments, server=False)
    assert ours == theirs
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
    place = ("--topic", filled, "--partition", "1", "--offset", "earliest", "--timeout-ms", "10000")
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
    assert ours == theirs
    assert not any("Error at" in line for line in ours)


def test_same_dump_of_offsets(both: Any, cluster: Cluster, filled: str) -> None:
    logs = sorted(cluster.data_dir.glob(f"__consumer_offsets-*/{FIRST}.log"))
    written = ",".join(str(path) for path in logs if path.stat().st_size)
    ours, theirs = both("dump-log", "--offsets-decoder", "--files", written, server=False)
    assert ours == theirs
    assert any('"subscription":{"topics":["filled"]' in line for line in ours)


def test_top_of_apache_kafka(cluster: Cluster, filled: str, tool: Any) -> None:
    seen = tool(
        "top", "--bootstrap-server", cluster.bootstrap_servers, "--iterations", "1", "--interval", "0.1"
    )
    assert seen.status == 0, seen.err
    lines = [line.split("\t") for line in seen.out.splitlines()]
    assert [line[3] for line in lines if line[0] == "broker"] == ["controller"]
    assert [line[2] for line in lines if line[:2] == ["topic", filled]] == ["2"]
    assert [line[3] for line in lines if line[:2] == ["group", "readers"]] == ["0"]
    assert not [line for line in lines if line[0] == "request"], "it tells nobody by the protocol"
