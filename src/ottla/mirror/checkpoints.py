"""Where groups of the source would be in the target: checkpoints, and offsets of groups that nobody uses
there.

Each process speaks of the partitions that it mirrors, whose offsets it knows best.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla.client.admin.groups import (
    Committed,
    commit_offsets,
    committed_offsets,
    committed_offsets_of,
    describe_group,
    list_groups,
)
from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.mirror.formats import (
    Checkpoint,
    OffsetSync,
    Unreadable,
    read_checkpoint,
    read_offset_sync,
)
from ottla.mirror.offset_syncs import TOO_OLD, Run, Runs, SyncHistory
from ottla.mirror.settings import FlowSettings
from ottla.mirror.topic_log import TopicReader, append
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_UNWRITTEN_MAX: Final = 10_000


class Translations:
    """What became of the source's offsets."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._histories: dict[Partition, SyncHistory] = {}
        self._runs: dict[Partition, Runs] = {}
        self._reader = TopicReader(cluster, topic, self._take)
        self._unwritten: list[OffsetSync] = []
        self.anew: set[Partition] = set()
        """Partitions of the source whose topics in the target were found to begin anew, until told."""

    def add(self, runs: Mapping[Partition, Sequence[Run]], syncs: Iterable[OffsetSync]) -> None:
        """What this process has mirrored."""
        for partition, found in runs.items():
            self._runs.setdefault(partition, Runs()).add(found)
        # Where they cannot be written for long, newer ones say more.
        self._unwritten = [*self._unwritten, *syncs][-_UNWRITTEN_MAX:]

    async def write(self) -> None:
        """Syncs that are not in their topic yet."""
        syncs, self._unwritten = self._unwritten, []
        try:
            await append(self._cluster, self._topic, [(sync.key(), sync.value()) for sync in syncs])
        except BaseException:
            self._unwritten = syncs + self._unwritten
            raise

    async def refresh(self) -> None:
        await self._reader.read_to_end()

    def translate(self, partition: Partition, upstream: int) -> int | None:
        """None where nothing is known, or too little."""
        runs = self._runs.get(partition)
        history = self._histories.get(partition)
        exact = None if runs is None else runs.translate(upstream)
        found = TOO_OLD if history is None else history.translate(upstream)
        # Neither goes too far. Of what others mirrored in between, only their syncs tell.
        best = found if exact is None else max(exact, found)
        return None if best == TOO_OLD else best

    def _take(self, key: bytes, value: bytes | None, written_ms: int) -> None:
        if value is None:
            return
        try:
            sync = read_offset_sync(key, value)
        except Unreadable as error:
            _log.warning("%s: %s", self._topic, error)
            return
        history = self._histories.get(sync.partition)
        if history is None:
            self._histories[sync.partition] = SyncHistory(sync, written_ms)
        elif history.add(sync, written_ms):
            self.anew.add(sync.partition)


class Checkpoints:
    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        settings: FlowSettings,
        translations: Translations,
        is_ours: Callable[[Partition], bool],
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._translations = translations
        self._is_ours = is_ours
        self._last: dict[tuple[str, Partition], Checkpoint] = {}
        self._reader = TopicReader(target, settings.checkpoints_topic, self._take)

    async def emit(self) -> None:
        """Checkpoints for what has moved."""
        await self._reader.read_to_end()
        await self._translations.refresh()
        anew = {self._downstream(partition) for partition in self._translations.anew}
        self._translations.anew.clear()
        self._last = {place: last for place, last in self._last.items() if place[1] not in anew}
        fresh = []
        for group, offsets in (await self.source_offsets()).items():
            for partition, committed in offsets.items():
                checkpoint = self._checkpoint(group, partition, committed)
                if checkpoint is not None and self._is_news(checkpoint):
                    fresh.append(checkpoint)
        await append(
            self._target, self._settings.checkpoints_topic, [(each.key(), each.value()) for each in fresh]
        )
        for each in fresh:
            self._last[each.group, each.partition] = each

    async def source_offsets(self) -> dict[str, dict[Partition, Committed]]:
        """Of groups and topics that are mirrored."""
        listed = [group for group in await list_groups(self._source) if self._settings.groups.takes(group.id)]
        found = await committed_offsets_of(self._source, listed)
        kept = {
            group: {
                partition: committed
                for partition, committed in offsets.items()
                if self._settings.topics.takes(partition.topic)
            }
            for group, offsets in found.items()
        }
        return {group: offsets for group, offsets in kept.items() if offsets}

    async def outdated(self) -> list[str]:
        """Groups that have read on since their checkpoints, in words."""
        await self._reader.read_to_end()
        told = []
        for group, offsets in (await self.source_offsets()).items():
            for partition, committed in offsets.items():
                last = self._last.get((group, self._downstream(partition)))
                if last is None:
                    told.append(f"group {group} has no checkpoint for {partition}")
                elif last.upstream != committed.offset:
                    told.append(
                        f"group {group} is at offset {committed.offset} of {partition}, "
                        f"its checkpoint at {last.upstream}"
                    )
        return told

    async def sync_groups(self) -> None:
        """Moves groups of the target on, of which nobody reads there; never back."""
        wanted: dict[str, dict[Partition, Checkpoint]] = {}
        for (group, partition), checkpoint in self._last.items():
            if self._is_ours(self._upstream(partition)):
                wanted.setdefault(group, {})[partition] = checkpoint
        for group, checkpoints in wanted.items():
            try:
                await self._sync_group(group, checkpoints)
            except KafkaError as error:
                _log.warning(
                    "%s: offsets of the group %s cannot be set: %s", self._settings.name, group, error
                )

    async def _sync_group(self, group: str, checkpoints: Mapping[Partition, Checkpoint]) -> None:
        try:
            if (await describe_group(self._target, group)).members:
                return
        except KafkaError as error:
            if error.code != ErrorCode.group_id_not_found:
                raise
        there = await committed_offsets(self._target, group)
        ahead = {
            partition: checkpoint.downstream
            for partition, checkpoint in checkpoints.items()
            if partition not in there or there[partition].offset < checkpoint.downstream
        }
        if ahead:
            try:
                await commit_offsets(self._target, group, ahead)
            except KafkaError as error:
                # Somebody has begun to read there.
                if error.code != ErrorCode.unknown_member_id:
                    raise

    def _checkpoint(self, group: str, partition: Partition, committed: Committed) -> Checkpoint | None:
        if not self._is_ours(partition):
            return None
        downstream = self._translations.translate(partition, committed.offset)
        if downstream is None:
            return None
        return Checkpoint(
            group, self._downstream(partition), committed.offset, downstream, committed.metadata
        )

    def _is_news(self, checkpoint: Checkpoint) -> bool:
        """Where the group was set back in the source it goes back here, too; otherwise only forward."""
        last = self._last.get((checkpoint.group, checkpoint.partition))
        return last is None or checkpoint.upstream < last.upstream or checkpoint.downstream > last.downstream

    def _downstream(self, partition: Partition) -> Partition:
        return partition._replace(topic=self._settings.remote(partition.topic))

    def _upstream(self, partition: Partition) -> Partition:
        upstream = self._settings.policy.upstream_topic(partition.topic)
        return partition if upstream is None else partition._replace(topic=upstream)

    def _take(self, key: bytes, value: bytes | None, _: int) -> None:
        if value is None:
            return
        try:
            checkpoint = read_checkpoint(key, value)
        except Unreadable as error:
            _log.warning("%s: %s", self._settings.checkpoints_topic, error)
            return
        self._last[checkpoint.group, checkpoint.partition] = checkpoint
