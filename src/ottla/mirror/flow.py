"""From one cluster to another: who does which part of it in this process, and what is due from time to
time."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost
from ottla.client.produce import InDoubt
from ottla.mirror.checkpoints import Checkpoints, Translations
from ottla.mirror.formats import Heartbeat
from ottla.mirror.membership import Membership
from ottla.mirror.policy import HEARTBEATS
from ottla.mirror.positions import Positions
from ottla.mirror.settings import Cluster, FlowSettings
from ottla.mirror.slot import Mirrored, Slot, Wanted
from ottla.mirror.topic_log import append, ensure_topic
from ottla.mirror.topics import Topics
from ottla.records.compression import CorruptRecords
from ottla.runtime.net import Network
from ottla.wire.errors import KafkaError

_log = logging.getLogger(__name__)
_STOP_S: Final = 20.0
_AGAIN_S: Final = 2.0
_SYNCS_S: Final = 0.5
# Of a transaction that has just ended the next has to wait for the markers: not for long.
_QUICK: Final = {"retry.backoff.ms": "20"}
_PASSING: Final = (KafkaError, PeerLost, ClusterUnreachable, InDoubt, CorruptRecords, OSError, TimeoutError)


def slot_of(partition: Partition, slots: int) -> int:
    """The same for all processes; partitions of a topic go to as many slots as there are."""
    return (zlib.crc32(partition.topic.encode()) + partition.number) % slots


class Flow:
    """`run` until `stop`."""

    def __init__(self, network: Network, settings: FlowSettings) -> None:
        self.settings = settings
        self._network = network
        self._clients: list[ClusterClient] = []
        self._source = self._client(settings.source, "admin")
        self._target = self._client(settings.target, "admin")
        self._topics = Topics(self._source, self._target, settings)
        self._positions = Positions(self._target, settings.positions_topic, settings.source.alias)
        syncs_at = self._target if settings.offset_syncs_in_target else self._source
        self._translations = Translations(syncs_at, settings.offset_syncs_topic)
        self._syncs_at = syncs_at
        self._checkpoints = Checkpoints(
            self._source, self._target, settings, self._translations, self._is_ours
        )
        self._membership = Membership(
            self._client(settings.target, "admin"),
            settings.group,
            settings.slots,
            f"{settings.topics} {settings.policy}",
            settings.session_timeout_ms,
            self._slots_changed,
        )
        self._own: set[int] = set()
        self._slots: dict[int, tuple[Slot, asyncio.Task[None]]] = {}
        self._wanted: dict[int, dict[Partition, Wanted]] = {}
        self._slots_are_due = asyncio.Event()
        self._refresh_is_due = asyncio.Event()
        self.mirrored = Mirrored()

    @property
    def own_slots(self) -> set[int]:
        return set(self._own)

    async def run(self) -> None:
        """Until cancelled; then slots end after the transactions that are under way."""
        settings = self.settings
        tasks: list[asyncio.Future[None]] = []
        try:
            await self._until_done("topics of the mirror", self._make_own_topics)
            chores = [
                self._membership.run(),
                self._repeatedly("heartbeats", settings.emit_heartbeats_s, self._beat, by_one=True),
            ]
            if settings.replicates:
                await self._until_done("topics", self._refresh_topics)
                configs, acls = self._topics.sync_configs, self._topics.sync_acls
                chores += [
                    self._run_slots(),
                    self._repeatedly("topics", settings.refresh_topics_s, self._refresh_topics),
                    self._repeatedly("settings of topics", settings.sync_configs_s, configs, by_one=True),
                    self._repeatedly("access rules", settings.sync_acls_s, acls, by_one=True),
                    self._find_missing(),
                ]
                if settings.emit_offset_syncs:
                    chores += [
                        self._repeatedly("offset syncs", _SYNCS_S, self._translations.write),
                        self._repeatedly("checkpoints", settings.emit_checkpoints_s, self._checkpoints.emit),
                        self._repeatedly("groups", settings.sync_groups_s, self._checkpoints.sync_groups),
                    ]
            tasks = [asyncio.ensure_future(chore) for chore in chores]
            await asyncio.gather(*tasks)
        finally:
            await self._end(tasks)

    async def _end(self, tasks: list[asyncio.Future[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop_slots(set(self._slots))
        try:
            async with asyncio.timeout(_STOP_S):
                await self._translations.write()
                await self._membership.leave()
        except _PASSING as error:
            _log.debug("%s: %s", self.settings.name, error)
        for client in self._clients:
            client.close()

    async def _make_own_topics(self) -> None:
        settings, factors = self.settings, self.settings.internal_replication_factors
        if settings.emit_heartbeats_s is not None:
            await ensure_topic(self._target, HEARTBEATS, factors["heartbeats.topic"])
        if settings.replicates:
            await self._positions.ensure(factors["offset.storage"])
            await ensure_topic(self._target, settings.checkpoints_topic, factors["checkpoints.topic"])
            if settings.emit_offset_syncs:
                await ensure_topic(self._syncs_at, settings.offset_syncs_topic, factors["offset-syncs.topic"])

    # Slots

    def _slots_changed(self, own: set[int]) -> None:
        if own != self._own:
            _log.info("%s: this process mirrors %s", self.settings.name, _share(own, self.settings.slots))
        self._own = own
        self._slots_are_due.set()

    async def _run_slots(self) -> None:
        while True:
            await self._slots_are_due.wait()
            self._slots_are_due.clear()
            await self._stop_slots(self._slots.keys() - self._own)
            for number in self._own:
                known = self._slots.get(number)
                if known is None or known[1].done():
                    self._start_slot(number)

    def _start_slot(self, number: int) -> None:
        settings = self.settings
        source = self._client(settings.source, "consumer")
        target = self._client(settings.target, "producer", **_QUICK)
        slot = Slot(
            name=f"{settings.name}, part {number}",
            source=source,
            target=target,
            transactional_id=f"{settings.group}-{settings.target.alias}-{number}",
            positions=self._positions,
            wanted=lambda: self._wanted.get(number, {}),
            committed=self._translations.add,
            is_still_ours=lambda: self._is_still_ours(number),
            refresh=self._refresh_is_due.set,
            commit_interval_s=settings.commit_interval_s,
            starts_at_end=settings.starts_at_end,
            mirrored=self.mirrored,
        )
        task = asyncio.ensure_future(self._run_slot(slot, source, target))
        self._slots[number] = slot, task

    async def _run_slot(self, slot: Slot, *clients: ClusterClient) -> None:
        try:
            await slot.run()
        except Exception:
            _log.exception("%s: ended by an error; it is started again", slot.name)
        finally:
            for client in clients:
                client.close()
                self._clients.remove(client)
            # One that ended by itself is started again, if it is still ours.
            asyncio.get_running_loop().call_later(_AGAIN_S, self._slots_are_due.set)

    async def _stop_slots(self, numbers: set[int]) -> None:
        ending = [self._slots.pop(number) for number in numbers]
        for slot, _ in ending:
            slot.stop()
        tasks = [task for _, task in ending]
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _is_still_ours(self, number: int) -> bool:
        return number in self._own and await self._membership.is_still_member()

    def _is_ours(self, partition: Partition) -> bool:
        slots = self.settings.slots
        number = slot_of(partition, slots)
        return number in self._own and partition in self._wanted.get(number, {})

    # What is due from time to time

    async def _refresh_topics(self) -> None:
        await self._topics.refresh()
        wanted: dict[int, dict[Partition, Wanted]] = {}
        for (name, number), topic in self._topics.partitions().items():
            partition = Partition(name, number)
            of_slot = wanted.setdefault(slot_of(partition, self.settings.slots), {})
            of_slot[partition] = Wanted(topic.id, Partition(topic.remote, number))
        before, self._wanted = self._wanted, wanted
        for number, (slot, _) in self._slots.items():
            if wanted.get(number) != before.get(number):
                slot.partitions_changed()

    async def _find_missing(self) -> None:
        """Looks at topics out of turn when the target lacks one."""
        while True:
            await self._refresh_is_due.wait()
            self._refresh_is_due.clear()
            await self._until_done("topics", self._refresh_topics)

    async def _beat(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        beat = Heartbeat(self.settings.source.alias, self.settings.target.alias, now_ms)
        await append(self._target, HEARTBEATS, [(beat.key(), beat.value())])

    async def _repeatedly(
        self,
        what: str,
        interval_s: float | None,
        act: Callable[[], Awaitable[None]],
        *,
        by_one: bool = False,
    ) -> None:
        """`by_one`: by the process that has the first slot. None: never."""
        if interval_s is None:
            return
        while True:
            await asyncio.sleep(interval_s)
            if not by_one or 0 in self._own:
                await self._until_done(what, act)

    async def _until_done(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """A fault of a cluster passes, or somebody has to be told of it for as long as it does not."""
        while True:
            try:
                await act()
            except _PASSING as error:
                _log.warning(
                    "%s: %s: %s; trying again", self.settings.name, what, str(error) or "no answer in time"
                )
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def _client(self, cluster: Cluster, role: str, **more: str) -> ClusterClient:
        properties = {"client.id": f"{self.settings.name}|{role}", **cluster.client(role), **more}
        client = ClusterClient(self._network, cluster.bootstrap_servers, properties)
        self._clients.append(client)
        return client


def _share(own: set[int], slots: int) -> str:
    return f"parts {', '.join(map(str, sorted(own)))} of {slots}" if own else f"none of {slots} parts"
