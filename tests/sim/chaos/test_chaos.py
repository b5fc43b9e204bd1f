"""A broker under administrative chaos breaks no promise; with a fix taken out, a few seeds find it out."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from typing import Any

import pytest

from ottla.config import BrokerConfig, LogConfig, resolve_topic
from ottla.config.rules import check_topic
from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.shard_log import ReplicatedShardLog
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.node import Node
from ottla.records.batch import iter_headers
from ottla.records.records import iter_records
from ottla.replication.log_work import LogWork, _Made
from ottla.sim.campaign import replay_command, run_campaign, run_seeds
from ottla.sim.chaos.mixes import MIXES
from ottla.sim.chaos.workload import simulate_chaos
from ottla.sim.checkers import InvariantViolation

SEEDS_UNTIL_FOUND_MAX = 15


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Everything goes wrong here, and is said."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


FOUND = [
    # What was written down of a deleted topic's log was taken for one of its name, after the power was cut.
    ("admin", 14),
]


@pytest.mark.parametrize(("mix", "seed"), [*product(sorted(MIXES), range(3)), *FOUND])
def test_no_promise_is_broken(mix: str, seed: int) -> None:
    outcome = simulate_chaos(seed, MIXES[mix])
    assert outcome.counts["records acknowledged"] > 0


def test_a_run_is_a_function_of_its_seed_in_every_process() -> None:
    program = (
        "import logging; logging.disable(logging.CRITICAL);"
        "from ottla.sim.chaos.mixes import MIXES; from ottla.sim.chaos.workload import simulate_chaos;"
        "print(simulate_chaos(2, MIXES['power']).digest)"
    )
    digests = {simulate_chaos(2, MIXES["power"]).digest}
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_a_campaign_counts_what_it_covered_and_runs_in_processes() -> None:
    tally = run_campaign(0, 6, "unmount", processes=2)
    assert tally.seeds == 6
    assert tally.first_failure is None
    assert tally.counts["fault: unmount"] > 0
    lines = list(tally.lines("unmount"))
    assert lines[0].startswith("6 seeds of unmount in ")
    assert lines[-1] == "no invariant was broken"


def find(mix: str, *invariants: str) -> str:
    """What the first seed that fails says, which is one of these, and that it says how to run it again."""
    for seed in range(SEEDS_UNTIL_FOUND_MAX):
        tally = run_seeds([seed], mix)
        if (failure := tally.first_failure) is not None:
            assert any(invariant in failure.reason for invariant in invariants), failure.reason
            assert f"replay it: {replay_command(seed, mix)}" in list(tally.lines(mix))
            with pytest.raises(InvariantViolation) as again:
                simulate_chaos(seed, MIXES[mix])
            assert str(again.value) in failure.reason
            return failure.reason
    raise AssertionError(f"{SEEDS_UNTIL_FOUND_MAX} seeds of {mix} and nothing was found")


def test_retention_that_asks_for_partitions_that_are_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def high_watermark(self: Node, tp: TopicPartition) -> int:
        return self._replicas.partition(tp.topic, tp.partition).high_watermark

    async def enforce_retention(self: LogManager, high_watermark: Callable[[TopicPartition], int]) -> None:
        for partition, partition_log in list(self._logs.items()):
            partition_log.enforce_retention(self._runtime.clock.now_ms(), high_watermark(partition))
            await asyncio.sleep(0)

    monkeypatch.setattr(Node, "_high_watermark", high_watermark)
    monkeypatch.setattr(LogManager, "_enforce_retention", enforce_retention)
    find("retention", "NodeThatFails")


def test_flushing_a_log_that_was_deleted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: PartitionLog) -> None:
        for segment in self.segments:
            self.files.open_segments.forget(segment)
            segment.release()

    async def flush(self: PartitionLog, upto: int | None = None) -> None:
        self._flush_lock = self._flush_lock or asyncio.Lock()
        async with self._flush_lock:
            end_offset = self.next_offset if upto is None else min(upto, self.next_offset)
            if self.recovery_point < end_offset:
                await self._sync(end_offset)

    monkeypatch.setattr(PartitionLog, "release", release)
    monkeypatch.setattr(PartitionLog, "flush", flush)
    find("deletion", "NodeThatFails")


def test_a_partition_without_a_place_that_ends_the_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = LogWork._settle

    def settle_or_fail(self: LogWork, done: _Made) -> None:
        if isinstance(done.outcome, OSError):
            raise done.outcome
        settle(self, done)

    monkeypatch.setattr(LogWork, "_settle", settle_or_fail)
    find("obstacles", "NodeThatFails")


def test_settings_that_contradict_the_defaults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve_and_check(broker: BrokerConfig, overrides: dict[str, str]) -> LogConfig:
        resolved = resolve_topic(broker, overrides)
        check_topic(
            {
                "min.compaction.lag.ms": resolved.min_compaction_lag_ms,
                "max.compaction.lag.ms": resolved.max_compaction_lag_ms,
            }
        )
        return resolved

    monkeypatch.setattr("ottla.replication.manager.resolve_topic", resolve_and_check)
    monkeypatch.setattr("ottla.node.resolve_topic", resolve_and_check)
    monkeypatch.setattr("ottla.controller.configs.validate_topic", lambda *_: None)
    assert "must be at most max.compaction.lag.ms" in find("settings", "NodeThatFails")


def test_a_rotten_bit_that_ends_a_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load = HostedShard._load

    async def load_strictly(self: HostedShard[Any]) -> None:
        """As it was: whatever a damaged batch raises ends the task, and with it the node."""
        shard_log = self._log
        assert isinstance(shard_log, ReplicatedShardLog)
        data = b""
        try:
            data = bytes(shard_log.read(self.partition, shard_log.start_offset(self.partition), 1 << 20))
        except Exception:
            await asyncio.sleep(0)
        for at, header in iter_headers(data):
            list(iter_records(data[at : at + header.size]))
        await load(self)

    monkeypatch.setattr(HostedShard, "_load", load_strictly)
    find("rot", "NodeThatFails")


def test_starting_without_metadata_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.node.check_metadata_is_there", lambda disk, config: None)
    find("unmount", "ForgottenMetadataChange", "LostAcknowledgedWrite")


def test_a_directory_of_metadata_that_a_power_cut_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.metadata.meta_properties.make_dir", lambda disk, path: disk.make_dirs(path))
    assert "holds no metadata of the cluster" in find("power", "NodeThatFails")


def test_a_connection_lost_without_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> Awaitable[None]:
        raise ZeroDivisionError("a bug in a handler")

    monkeypatch.setattr("ottla.controller.controller.LocalController.create_partitions", fail)
    assert "closed the connection of grow" in find("deletion", "NodeThatFails")
