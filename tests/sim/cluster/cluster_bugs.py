"""Mistakes one could make in the product. Each must be found by a checker within a few seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from ottla.config import BrokerConfig
from ottla.controller import partition_change
from ottla.controller.partition_change import Election, PartitionImage, Surroundings
from ottla.coordinator.host.shard_log import ReplicatedShardLog
from ottla.handlers.fetch import _Attempt
from ottla.log.directory import LogDir
from ottla.log.log import PartitionLog
from ottla.metadata import delta
from ottla.metadata.change import MetadataChange
from ottla.raft.changing_voters import ChangingVoters
from ottla.raft.driver import Appended, RaftDriver
from ottla.raft.messages import VoterChangeResponse
from ottla.raft.metadata_log import QuorumError
from ottla.raft.voters import ReplicaKey
from ottla.replication.fetcher import _Fetcher
from ottla.replication.fetching import Followed
from ottla.replication.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.security.authorizer import Authorizer
from ottla.wire.errors import ErrorCode


def acknowledges_before_replication(patch: pytest.MonkeyPatch) -> None:
    """What the leader has is taken for what all in sync have."""
    patch.setattr(Leadership, "committed_upto", lambda self, log_end, *_: log_end)


def ignores_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """Followers go on behind records that their leader does not have."""
    patch.setattr(PartitionLog, "diverging_epoch", lambda self, epoch, offset: None)


def elects_outside_of_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Whoever lives leads, those first who are not in sync."""

    def elect(
        partition: PartitionImage,
        election: Election,
        surroundings: Surroundings,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        eligible: tuple[int, ...],
    ) -> Any:
        able = sorted(filter(surroundings.may_lead, replicas), key=lambda replica: replica in isr)
        leader = partition.leader if partition.leader in able else (able or [-1])[0]
        return partition_change._Elected(leader, unclean=leader >= 0 and leader not in isr)

    patch.setattr(partition_change, "_elect", elect)


def keeps_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """Another leader, and nobody can tell its time from that of the one before."""
    after_change = delta.after_change

    def in_the_same_epoch(old: Any, record: Any) -> Any:
        return replace(after_change(old, record), leader_epoch=old.leader_epoch)

    patch.setattr(delta, "after_change", in_the_same_epoch)


def loads_a_coordinator_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know yet how far its log is committed."""

    def read(self: ReplicatedShardLog, partition: int, offset: int, size_bytes: int) -> Any:
        found = self._replicas.partition(self._topic, partition)
        return found.log.read(offset, size_bytes, upto=found.high_watermark)

    def end_offset(self: ReplicatedShardLog, partition: int) -> int:
        return self._replicas.partition(self._topic, partition).high_watermark

    patch.setattr(ReplicatedShardLog, "read", read)
    patch.setattr(ReplicatedShardLog, "end_offset", end_offset)
    patch.setattr(ReplicatedShardLog, "wait_committed", lambda self, partition: None)


def truncates_below_committed(patch: pytest.MonkeyPatch) -> None:
    """To where it knew its log to be committed when it started, and then some."""
    truncate = _Fetcher._truncate

    async def too_far(self: _Fetcher, followed: Followed, offset: int) -> None:
        await truncate(self, followed, max(offset - 5, followed.partition.log.start_offset))

    patch.setattr(_Fetcher, "_truncate", too_far)


def turns_a_commit_into_an_abort(patch: pytest.MonkeyPatch) -> None:
    """In one of the partitions of a transaction."""
    append_marker = Partition.append_marker

    def aborts(
        self: Partition, producer_id: int, epoch: int, coordinator: int, committed: bool, version: int = 0
    ) -> Any:
        committed = committed and self.topic_partition.partition != 1
        return append_marker(self, producer_id, epoch, coordinator, committed, version)

    patch.setattr(Partition, "append_marker", aborts)


def forgets_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records are not told what to leave out."""
    patch.setattr(PartitionLog, "aborted_in", lambda self, offset, data: [])


def loses_sequences_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A follower does not remember what producers have sent, so that repetitions are new to it."""
    append = PartitionLog.append_as_follower

    def append_and_forget(self: PartitionLog, records: Any) -> Any:
        result = append(self, records)
        for producer_id in list(self.producers.active):
            self.producers.active.pop(producer_id)
        return result

    patch.setattr(PartitionLog, "append_as_follower", append_and_forget)


def acknowledges_metadata_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    append = RaftDriver.append

    def append_and_be_done(self: RaftDriver, records: Any) -> Appended:
        appended = append(self, records)
        appended.committed.add_done_callback(lambda committed: committed.cancelled() or committed.exception())
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return Appended(appended.last_offset, done)

    patch.setattr(RaftDriver, "append", append_and_be_done)


def gives_up_when_a_log_is_cut(patch: pytest.MonkeyPatch) -> None:
    """An error that nobody expects."""

    def fail(self: Partition) -> None:
        raise ZeroDivisionError("a bug in following")

    patch.setattr(Partition, "truncated", fail)


def never_lets_anybody_back_into_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_expand_isr", lambda self, leading, in_sync, replica: None)


def shows_consumers_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """They are shown all that the leader has, and may never see it again."""
    read = _Attempt._read

    def read_everything(self: _Attempt, entry: Any, room: int, min_one: bool) -> Any:
        partition = entry.partition
        if partition is None or self._set.replica_id >= 0 or self._request.read_committed:
            return read(self, entry, room, min_one)
        known, partition.high_watermark = partition.high_watermark, partition.log.next_offset
        try:
            return read(self, entry, room, min_one)
        finally:
            partition.high_watermark = known

    patch.setattr(_Attempt, "_read", read_everything)


def asks_a_mere_broker_for_its_metadata(patch: pytest.MonkeyPatch) -> None:
    """It need not sync it, and may have lost it."""

    def check(disk: Any, config: BrokerConfig) -> None:
        names = disk.list_dir("/data") if disk.exists("/data") else ()
        if any(name.endswith("-0") for name in names) and not disk.exists("/meta/__cluster_metadata-0"):
            raise QuorumError("there are partitions, and no metadata of the cluster")

    patch.setattr("ottla.node.check_metadata_is_there", check)


def acknowledges_removals_that_it_does_not_write(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: ChangingVoters, voter: ReplicaKey) -> VoterChangeResponse:
        return VoterChangeResponse(ErrorCode.none, 0, None)

    patch.setattr(ChangingVoters, "remove", at_once)


def ends_with_one_of_its_directories(patch: pytest.MonkeyPatch) -> None:
    """Others hold replicas of all that was in it."""

    def fail(self: LogDir, reason: str) -> None:
        raise ZeroDivisionError(f"a bug in taking {self.path} out of use: {reason}")

    patch.setattr(LogDir, "fail", fail)


def leaves_quotas_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """Whoever starts from one does not know them."""
    patch.setattr("ottla.metadata.snapshot.quota_records", lambda quotas: iter(()))


def goes_by_rules_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """All brokers know that they are, and the authorizer is not told."""
    apply = Authorizer.apply

    def only_if_there_are_more(self: Authorizer, change: MetadataChange) -> None:
        if len(change.after.acls) > len(self.acls):
            apply(self, change)

    patch.setattr(Authorizer, "apply", only_if_there_are_more)


class Bug(NamedTuple):
    plant: Any
    workload: str
    checkers: Iterable[str]
    """Any of these may be the first to see it."""
    first_seed: int = 0
    """Known to find it; others are tried if it no longer does."""


BUGS = (
    Bug(
        acknowledges_before_replication, "cluster-plain", {"HighWatermarkGoingBack", "LostAcknowledgedWrite"}
    ),
    Bug(ignores_the_leader_epoch, "cluster-plain", {"DivergentReplicas", "LostAcknowledgedWrite"}, 1),
    Bug(elects_outside_of_the_isr, "cluster-moves", {"HighWatermarkGoingBack"}),
    Bug(keeps_the_leader_epoch, "cluster-plain", {"TwoLeadersInAnEpoch"}),
    Bug(loads_a_coordinator_to_the_high_watermark, "cluster-groups", {"LostCommittedOffset"}),
    Bug(truncates_below_committed, "cluster-plain", {"HighWatermarkGoingBack"}, 1),
    Bug(turns_a_commit_into_an_abort, "cluster-transactions", {"TornTransaction"}),
    Bug(forgets_aborted_transactions, "cluster-transactions", {"AbortedRead"}),
    Bug(loses_sequences_on_failover, "cluster-idempotent", {"DuplicateFromIdempotentProducer"}, 3),
    Bug(acknowledges_metadata_before_it_is_committed, "cluster-topics", {"ForgottenMetadataChange"}, 6),
    Bug(gives_up_when_a_log_is_cut, "cluster-plain", {"NodeThatFails"}, 1),
    Bug(never_lets_anybody_back_into_the_isr, "cluster-plain", {"UnavailableThoughAMajorityLives"}),
    Bug(
        shows_consumers_what_is_not_committed,
        "cluster-plain",
        {"SkippedOrNonMonotonicPoll", "LostAcknowledgedWrite"},
        6,
    ),
    Bug(acknowledges_removals_that_it_does_not_write, "cluster-voters", {"ForgottenVoterChange"}, 5),
    Bug(acknowledges_metadata_before_it_is_committed, "cluster-access", {"ForgottenAccessChange"}, 3),
    Bug(leaves_quotas_out_of_snapshots, "cluster-access", {"ForgottenAccessChange"}),
    Bug(goes_by_rules_that_are_gone, "cluster-access", {"ForgottenAccessChange"}),
    Bug(ends_with_one_of_its_directories, "cluster-disks", {"NodeThatFails"}),
    # Found by a seed, and mended.
    Bug(asks_a_mere_broker_for_its_metadata, "cluster-moves", {"NodeThatFails"}, 3),
)
