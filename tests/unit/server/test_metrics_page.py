"""From the state of a broker to the text that Prometheus reads."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path

import pytest
from metrics_kit import Hosted, World
from prometheus_client.openmetrics import parser as openmetrics_parser

from ottla.config import LogConfig
from ottla.log.cleaner import CleanerCounters
from ottla.log.types import TopicPartition
from ottla.server.listener import UNLIMITED_BYTES
from ottla.server.metrics import reference
from ottla.server.metrics.declared import METRICS
from ottla.server.metrics.page import render
from ottla.server.metrics.snapshot import read_snapshot


def test_partitions() -> None:
    world = World()
    found = world.scraped()
    orders = {
        name.removeprefix("ottla_partition_"): value
        for (name, labels), value in found.items()
        if name.startswith("ottla_partition_") and sorted(labels) == ["0", "orders"]
    }
    assert orders == {
        "log_bytes": world.first.log.size_bytes,
        "log_segments": 5,
        "log_start_offset": 0,
        "log_end_offset": 5,
        "high_watermark_offset": 5,
        "follower_lag_records": 0,
        "last_stable_offset": 5,
    }
    behind = {name: value for (name, labels), value in found.items() if sorted(labels) == ["1", "orders"]}
    assert behind["ottla_partition_log_end_offset"] == 2
    assert behind["ottla_partition_high_watermark_offset"] == 1
    assert not [labels for _, labels in found if sorted(labels) == ["2", "orders"]], "it is being deleted"


def test_the_broker_and_its_cluster() -> None:
    found = World().scraped()
    plain = {
        name: value for (name, labels), value in found.items() if not labels and name.startswith("ottla")
    }
    assert plain == {
        "ottla_cluster_topics": 2,
        "ottla_cluster_partitions": 3,
        "ottla_cluster_offline_partitions": 1,
        "ottla_broker_partitions": 2,
        "ottla_broker_under_replicated_partitions": 1,
        "ottla_broker_under_min_isr_partitions": 0,
        "ottla_scrub_passes_total": 1,
        "ottla_scrub_segments_total": 2,
        "ottla_scrub_read_bytes_total": 300,
        "ottla_scrub_damaged_batches_total": 4,
        "ottla_cleaner_rounds_total": 5,
        "ottla_cleaner_failures_total": 6,
        "ottla_cleaner_read_bytes_total": 7000,
        "ottla_cleaner_written_bytes_total": 800,
        "ottla_cleaner_round_seconds_total": 9.5,
        "ottla_cleaner_running_rounds": 1,
        "ottla_cleaner_last_round_timestamp_seconds": 10.5,
        "ottla_cleaner_last_check_timestamp_seconds": 11,
        "ottla_cleaner_dirty_ratio_max": 0.25,
        "ottla_cleaner_uncleanable_partitions": 1,
        "ottla_connections": 2,
        "ottla_connections_accepted_total": 20,
        "ottla_connections_refused_total": 3,
        "ottla_request_memory_bytes": 4096,
        "ottla_request_memory_limit_bytes": 1 << 20,
        "ottla_client_metrics_instances": 4,
        "ottla_client_metrics_pushes_total": 12,
        "ottla_client_metrics_pushed_bytes_total": 3456,
    }
    labelled = {(name, *sorted(labels)): value for (name, labels), value in found.items() if labels}
    assert labelled["ottla_partition_uncleanable", "3", "table"] == 1
    assert labelled["ottla_groups", "Stable", "consumer"] == 2
    assert labelled["ottla_groups", "Empty", "classic"] == 1
    assert labelled["ottla_transactional_ids", "Ongoing"] == 3
    assert labelled["ottla_broker_info", "7", "abc"] == 1
    assert found["process_resident_memory_bytes", ()] > 1_000_000


def test_fewer_in_sync_than_producers_ask_for() -> None:
    world = World()
    world.first.log.update_config(LogConfig(min_insync_replicas=2))
    world.second.log.update_config(LogConfig(min_insync_replicas=2))
    assert world.snapshot().under_min_isr == 1


def test_damage_is_told_by_partition_until_it_is_gone() -> None:
    world = World()
    assert world.snapshot().damaged == {}
    world.damage(world.first, segment=0, position=0)
    world.damage(world.first, segment=3, position=0)
    world.damage(world.second, segment=0, position=0)
    found = world.scraped()
    name = "ottla_partition_damaged_batches"
    assert {tuple(sorted(labels)): value for (other, labels), value in found.items() if other == name} == {
        ("0", "orders"): 2,
        ("1", "orders"): 1,
    }
    world.first.log.delete_records_before(3)
    world.first.log.enforce_retention(0, world.first.log.next_offset)
    assert world.snapshot().damaged == {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 1}


def test_no_limit_and_nothing_compacted_yet() -> None:
    world = World()
    world.limits.request_bytes.limit = UNLIMITED_BYTES
    world.cleaner.counters = CleanerCounters()
    found = world.scraped()
    assert math.isinf(found["ottla_request_memory_limit_bytes", ()])
    assert not [name for name, _ in found if "timestamp" in name and name.startswith("ottla")]


def test_many_partitions_do_not_keep_requests_waiting() -> None:
    world = World()
    world.broker.replicas.by_name[b"orders"] = Hosted(dict.fromkeys(range(1000), world.first))

    async def turns_in_between() -> int:
        reading = asyncio.ensure_future(read_snapshot(world.broker, world.limits))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await reading).hosted) == 1000
        return turns

    assert asyncio.run(turns_in_between()) >= 4


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=1.0.0", "application/openmetrics-text"]
)
def test_a_scraper_may_ask_for_openmetrics(accept: str) -> None:
    page = render([(METRICS, World().snapshot())], accept)
    assert page.content_type.startswith("application/openmetrics-text; version=1.0.0")
    text = page.body.decode()
    families = {
        family.name: family
        for family in openmetrics_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    }
    for declared in METRICS:
        assert families[declared.name.removesuffix("_total")].type == declared.kind


@pytest.mark.parametrize(
    "accept", ["", "text/html", "text/plain; version=new", "application/openmetrics-text; version=x"]
)
def test_others_get_plain_text(accept: str) -> None:
    assert render([(METRICS, World().snapshot())], accept).content_type.startswith(
        "text/plain; version=0.0.4"
    )


def test_names_and_texts_are_what_prometheus_recommends() -> None:
    names = [declared.name.removesuffix("_total") for declared in METRICS]
    assert len(set(names)) == len(names)
    for declared in METRICS:
        assert re.fullmatch(r"ottla(_[a-z]+)+", declared.name)
        assert not re.search(r"_(ms|millis|kb|mb|count)(_|$)", declared.name), "base units, and no count"
        assert declared.help.endswith(".")
        assert not set('"\\\n') & set(declared.help), "would need escaping"
        assert len(declared.help) > 20


def test_the_reference_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs/reference/metrics.md"
    assert page.read_text() == reference.render(), "run `make docs`"
