"""Figures of hosts: what an alert does, and what a minute adds up to."""

from __future__ import annotations

from tests.integration.examples.test_log_examples import load_example

from ottla.streams.testing import TopologyTestDriver

pipeline = load_example("metrics/pipeline.py")


def test_an_alert_does_not_flutter() -> None:
    values = [95, 95, 70, 95, 95, 95, 85, 95, 70, 70, 85, 70, 70, 70, 95]
    with TopologyTestDriver(pipeline.build()) as driver:
        readings = driver.create_input_topic("host-metrics", str, dict)
        alerts = driver.create_output_topic("host-alerts", str, dict)
        seen = []
        for second, value in enumerate(values):
            readings.pipe_input("db", {"cpu": float(value)}, second * 1000)
            seen += [(second, each["state"]) for each in alerts.read_values()]
    assert seen == [(5, "raised"), (13, "cleared")]


def test_minutes_have_means_and_peaks() -> None:
    with TopologyTestDriver(pipeline.build()) as driver:
        readings = driver.create_input_topic("host-metrics", str, dict)
        for second, value in ((0, 10.0), (30, 50.0), (59, 30.0), (60, 99.0), (58, 70.0)):
            readings.pipe_input("db", {"cpu": value}, second * 1000)
        rows = driver.create_output_topic("host-minutes", str, dict).read_values()
    last = {row["from_ms"]: (row["mean"]["cpu"], row["highest"]["cpu"]) for row in rows}
    assert last == {0: (40.0, 70.0), 60_000: (99.0, 99.0)}
