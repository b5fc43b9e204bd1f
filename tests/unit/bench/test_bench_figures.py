"""Percentiles, ratios, targets and what Apache Kafka's tools print."""

from __future__ import annotations

import json

import pytest
from bench.figures import FIGURES, select
from bench.kafka_tools import ToolFailed, complaint, parse_consumer, parse_end_to_end, parse_producer
from bench.latency import NS, Latency, percentile, summarise
from bench.loads import all_loads
from bench.report import Results, as_json, chosen, rows

PRODUCER = """\
50000 records sent, 10000.0 records/sec (9.54 MB/sec), 5.0 ms avg latency, 9.0 ms max latency, \
4 ms 50th, 8 ms 95th, 9 ms 99th, 9 ms 99.9th.
40000 steady state records sent, 20000.0 records/sec (19.07 MB/sec), 5.0 ms avg latency, 9.0 ms max latency, \
4 ms 50th, 8 ms 95th, 9 ms 99th, 9 ms 99.9th.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2025-01-01 00:00:00:000, 2025-01-01 00:00:04:000, 190.7, 47.7, 200000, 50000.0, 3000, 1000, 190.7, 200000.0
"""


def test_every_figure_of_a_load_is_declared_and_measured_once() -> None:
    measured = [figure for load in all_loads() for figure in load.figures]
    assert sorted(measured) == sorted({figure for figure in FIGURES if figure.startswith(("replay", "java"))})


def test_latency_counts_from_when_a_record_was_due() -> None:
    # Ten records a second; the first five arrive together half a second late, the rest on time.
    arrivals = [(9 * NS // 10, 5), *((record * NS // 10, record + 1) for record in range(5, 10))]
    assert summarise(arrivals, rate=10, begin_ns=0, skip=0) == Latency(p50=0.0, p99=900.0, p999=900.0)
    assert summarise(arrivals, rate=10, begin_ns=0, skip=4).p99 == 500.0


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100)])
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_tools_output() -> None:
    assert parse_producer(PRODUCER) == 20000.0
    assert parse_consumer(CONSUMER) == 200000.0
    percentiles = "Avg latency: 1.0 ms\nPercentiles: 50th = 1, 99th = 4, 99.9th = 17\n"
    assert parse_end_to_end(percentiles) == Latency(1.0, 4.0, 17.0)
    with pytest.raises(ToolFailed):
        parse_producer("Exception in thread main")


def test_complaint_is_the_root_cause() -> None:
    trace = "Exception in thread main\n\tat a.B.c\nCaused by: x.TimeoutException: too late\n\t... 3 more\n"
    assert complaint(trace) == "x.TimeoutException: too late"


def test_ratio_is_of_medians_and_targets_know_their_direction() -> None:
    results = Results(("Ottla", "Kafka"))
    for mine, peers in ((10.0, 40.0), (30.0, 20.0), (20.0, 10.0)):
        results.add("Ottla", {"replay.requests": mine, "start": mine})
        results.add("Kafka", {"replay.requests": peers, "start": peers})
    _, requests, start = rows(results, chosen({"replay.requests", "start"}))
    assert requests[2:] == ["20.0 (10.0–30.0)", "20.0 (10.0–40.0)", "1.00", "≥ 1.5", "missed"]
    assert start[4:] == ["1.00", "≤ 0.1", "missed"]
    assert FIGURES["start"].met(0.05)
    assert FIGURES["replay.requests"].met(1.6)


def test_missing_figure_leaves_a_gap_and_its_reason() -> None:
    results = Results(("Ottla", "Kafka"))
    results.add("Kafka", {"replay.requests": 5.0})
    results.miss("Ottla", ["replay.requests"], "it broke")
    figures = chosen({"replay.requests"})
    assert rows(results, figures)[1][2:5] == ["–", "5.00", "–"]
    assert json.loads(as_json(results, figures, {}))["gaps"] == {"Ottla": {"replay.requests": "it broke"}}


def test_select_by_part_and_pattern() -> None:
    assert select(["memory"]) == {"memory.idle", "memory.loaded", "memory.private"}
    assert select(["*.p99"]) == {"replay.latency.1k.p99", "replay.latency.10k.p99", "java.latency.p99"}
    with pytest.raises(ValueError, match="nothing-like-it"):
        select(["nothing-like-it"])
