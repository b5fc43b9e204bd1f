"""Tools that write, read and measure, beside Apache Kafka's: what they print, but for the measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import Cluster, measured, normal

# Kafka's tools were seen to give up, or to answer with half the picture, on a busy machine.
pytestmark = [pytest.mark.maven, pytest.mark.soak, pytest.mark.timeout(300)]


def created(tool: Any, cluster: Cluster, *names: str) -> None:
    for name in names:
        place = ("--bootstrap-server", cluster.bootstrap_servers)
        assert tool("topics", "--create", "--if-not-exists", "--topic", name, *place).status == 0


def events(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        assert isinstance(event.pop("timestamp"), int)
    return found


def test_verifiable_records(cluster: Cluster, tool: Any) -> None:
    created(tool, cluster, "checked-theirs", "checked-ours")
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    writing = (*place, "--max-messages", "5", "--value-prefix", "7", "--repeating-keys", "2")
    theirs = events(cluster.theirs("verifiable-producer", "--topic", "checked-theirs", *writing).stdout)
    ours = events(tool("verifiable-producer", "--topic", "checked-ours", *writing).out)
    for event in (*theirs, *ours):
        event.pop("avg_throughput", None)
        event.pop("topic", None)
    assert ours == theirs
    assert [event["name"] for event in ours].count("producer_send_success") == 5

    def read(words: Any, group: str) -> Any:
        more = ("--topic", "checked-theirs", "--group-id", group, "--max-messages", "5", "--verbose")
        return words("verifiable-consumer", *place, *more)

    theirs = events(read(cluster.theirs, "theirs").stdout)
    ours = events(read(tool, "ours").out)
    assert ours == theirs
    assert [event["name"] for event in ours].count("record_data") == 5


def test_producer_performance(both: Any, cluster: Cluster, tool: Any) -> None:
    created(tool, cluster, "written")
    shape = ("--topic", "written", "--num-records", "2000", "--record-size", "10", "--throughput", "-1")
    ours, theirs = both("producer-perf-test", *shape, "--warmup-records", "500")
    latency = re.compile(r"\d+ ms (?=[\d#])")
    cut = [[latency.sub("# ms ", line) for line in measured(lines)] for lines in (ours, theirs)]
    assert cut[0] == cut[1]
    assert cut[0][1:] == [
        f"{what} records sent, # records/sec (# MB/sec), # ms avg latency, # ms max latency, "
        "# ms 50th, # ms 95th, # ms 99th, # ms #th."
        for what in ("2000", "1500 steady state")
    ]


@pytest.mark.parametrize(
    "more", [(), ("--hide-header",), ("--show-detailed-stats", "--reporting-interval", "1")], ids=str
)
def test_consumer_performance(both: Any, cluster: Cluster, tool: Any, more: tuple[str, ...]) -> None:
    created(tool, cluster, "read")
    place = ("--topic", "read", "--bootstrap-server", cluster.bootstrap_servers)
    tool("producer-perf-test", *place, "--num-records", "3000", "--record-size", "10", "--throughput", "-1")
    reading = ("--topic", "read", "--num-records", "3000", "--timeout", "60000")
    ours, theirs = both("consumer-perf-test", *reading, *more)
    # Whole numbers of milliseconds, of joining and of fetching, are measured as well.
    cut = [
        [re.sub(r", \d+, \d+, #", ", #, #, #", line) for line in measured(lines)] for lines in (ours, theirs)
    ]
    if "--show-detailed-stats" in more:
        # How many reports there are, and what each has counted so far, depends on the time.
        cut = [sorted({re.sub(r"#, \d+, #", "#, #, #", line) for line in lines}) for lines in cut]
        assert len(cut[0]) == 2
    assert cut[0] == cut[1]
    assert cut[0]


def test_end_to_end_latency(cluster: Cluster, tool: Any) -> None:
    words = ("--num-records", "20", "--producer-acks", "all", "--record-size", "30")
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    theirs = cluster.theirs("e2e-latency", *place, "--topic", "echo-theirs", *words)
    ours = tool("e2e-latency", *place, "--topic", "echo-ours", *words)
    assert ours.status == theirs.returncode == 0

    def cut(text: str) -> list[str]:
        lines = measured(normal(text.replace("echo-theirs", "echo-ours")))
        return [re.sub(r"= \d+", "= #", line) for line in lines]

    assert cut(ours.out) == cut(theirs.stdout)
    assert len(cut(ours.out)) == 4


def test_deleted_records(both: Any, cluster: Cluster, tool: Any, tmp_path: Path) -> None:
    created(tool, cluster, "cut")
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    assert tool("console-producer", "--topic", "cut", *place, stdin="a\nb\nc\n").status == 0
    for offset in (1, 2, -1):
        wanted = {"version": 1, "partitions": [{"topic": "cut", "partition": 0, "offset": offset}]}
        (tmp_path / "offsets.json").write_text(json.dumps(wanted))
        ours, theirs = both("delete-records", "--offset-json-file", str(tmp_path / "offsets.json"))
        assert ours == theirs
        assert ours[-1] == f"partition: cut-0 low_watermark: {offset if offset > 0 else 3}"


def test_records_per_second_as_a_ratio_to_kafkas_tool(
    cluster: Cluster, tool: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    shape = ("--topic", "load", "--num-records", "300000", "--record-size", "100", "--throughput", "-1")
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    rates = []
    tool("producer-perf-test", *shape, *server)
    theirs = cluster.theirs("producer-perf-test", *shape, *server)
    ours = tool("producer-perf-test", *shape, *server)
    for output in (ours.out, theirs.stdout):
        found = re.search(r"300000 records sent, ([\d.]+) records/sec", output)
        assert found is not None, output
        rates.append(float(found[1]))
    with capfd.disabled():
        print(f"\nkafka-producer-perf-test: {rates[0]:,.0f} records/s, {rates[0] / rates[1]:.2f} of Kafka's")
