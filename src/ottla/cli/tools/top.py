"""`ottla top`: what a cluster does at this moment, again and again."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, printable, rich_table, show_record
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.cluster.admin import Admin
    from ottla.cli.monitoring.readings import Reading

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.monitoring.readings import metrics_urls

    if given.interval <= 0:
        raise ToolError(f"--interval {given.interval:g}: must be more than 0 seconds")
    if given.iterations is not None and given.iterations < 1:
        raise ToolError(f"--iterations {given.iterations}: must be at least 1")
    with cluster(given) as admin:
        urls = _urls(given.metrics) if given.metrics else admin.call(metrics_urls)
        readings = _readings(admin, urls, given.interval, given.iterations)
        if given.json:
            for before, now in readings:
                show_record(_data(before, now, given.rows))
        elif sys.stdout.isatty():
            _show_live(readings, given.rows)
        else:
            for before, now in readings:
                print("\n".join(_plain(before, now, given.rows)), flush=True)
    return 0


def _urls(given: list[str]) -> dict[str, str]:
    """By the address, which stands for the broker then."""
    urls = [url if "://" in url else f"http://{url}/metrics" for url in given]
    return {url.partition("://")[2].partition("/")[0].rpartition("@")[2]: url for url in urls}


def _readings(
    admin: Admin, urls: dict[str, str], interval: float, iterations: int | None
) -> Iterator[tuple[Reading, Reading]]:
    from ottla.cli.monitoring.readings import read, slow_requests

    before = admin.call(read, time.monotonic())
    count = 0
    while iterations is None or count < iterations:
        count += 1
        time.sleep(interval)
        now = replace(admin.call(read, time.monotonic()), slow=slow_requests(urls))
        yield before, now
        before = now


def _tables(before: Reading, now: Reading, rows: int) -> list[Table]:
    from ottla.cli.monitoring.readings import broker_loads, group_lags, topic_rates

    brokers = [
        (
            each.id,
            each.address,
            "controller" if each.is_controller else "",
            each.leads,
            each.replicas,
            each.lagging,
            "?" if each.size_bytes is None else _bytes(each.size_bytes),
        )
        for each in broker_loads(now)
    ]
    topics = [
        (
            each.topic,
            each.partitions,
            f"{each.records:,.0f}",
            f"{_bytes(each.bytes)}/s",
            _bytes(each.size_bytes),
        )
        for each in topic_rates(before, now)[:rows]
    ]
    groups = [
        (each.group, each.state, f"{each.lag:,}", f"{each.records:,.0f}")
        for each in group_lags(before, now)[:rows]
    ]
    tables = [
        Table(("Broker", "Address", "", "Leads", "Replicas", "Lagging", "On disk"), brokers, "Brokers"),
        Table(("Topic", "Partitions", "Records/s", "Bytes/s", "On disk"), topics, "Busiest topics"),
        Table(("Group", "State", "Lag", "Records/s"), groups, "Groups that lag most"),
    ]
    if now.slow:
        slow = [(each.request, each.broker, f"{each.p99_ms:.2f} ms") for each in now.slow[:rows]]
        tables.append(Table(("Request", "Broker", "p99"), slow, "Slowest requests"))
    return tables


def _headline(before: Reading, now: Reading) -> str:
    from ottla.cli.monitoring.readings import topic_rates, without_leader

    rates = topic_rates(before, now)
    leaderless = without_leader(now.states.values())
    return (
        f"{len(now.brokers)} brokers, {len(rates)} topics, {len(now.states)} partitions"
        f" ({leaderless} without a leader), {sum(each.records for each in rates):,.0f} records/s, "
        f"{_bytes(sum(each.bytes for each in rates))}/s"
    )


def _show_live(readings: Iterator[tuple[Reading, Reading]], rows: int) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live("reading…", screen=True, auto_refresh=False) as live:
        for before, now in readings:
            tables = (rich_table(table, width=live.console.width) for table in _tables(before, now, rows))
            live.update(Group(_headline(before, now), "", *tables), refresh=True)


def _plain(before: Reading, now: Reading, rows: int) -> Iterator[str]:
    """A line for each thing, which begins with what it is."""
    yield f"cluster\t{_headline(before, now)}"
    kinds = ("broker", "topic", "group", "request")
    for kind, table in zip(kinds, _tables(before, now, rows), strict=False):
        for row in table.rows:
            yield "\t".join((kind, *(printable(str(value)) for value in row)))


def _data(before: Reading, now: Reading, rows: int) -> dict[str, Any]:
    from ottla.cli.monitoring.readings import broker_loads, group_lags, topic_rates, without_leader

    return {
        "partitions": len(now.states),
        "partitions_without_leader": without_leader(now.states.values()),
        "brokers": [each._asdict() for each in broker_loads(now)],
        "topics": [each._asdict() for each in topic_rates(before, now)[:rows]],
        "groups": [each._asdict() for each in group_lags(before, now)[:rows]],
        "slow_requests": [each._asdict() for each in now.slow[:rows]],
    }


def _bytes(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


TOOL = Tool(
    name="top",
    description="Show what a cluster does: brokers, the busiest topics, groups that lag, slow requests.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("interval", "seconds between two looks", "SECONDS", parse=float, default=2.0),
        Option("iterations", "how often to look; until Ctrl-C if not given", "COUNT", parse=int),
        Option("rows", "how many topics, groups and requests to show", "COUNT", parse=int, default=10),
        Option(
            "metrics",
            "where a broker serves its metrics, for the times of requests, such as "
            "https://user:password@host:9404/metrics; brokers with a fixed ottla.metrics.listener and no "
            "password are found without",
            "URL",
            repeats=True,
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092",
        "--bootstrap-server localhost:9092 --iterations 1 --json",
    ),
    notes="Works with any cluster that speaks the protocol. Times of requests come from the metrics of "
    "Ottla's brokers. Rates of bytes are by how much the leaders' logs have grown.",
)
