"""Which slots of a flow are this process's: a group in the target, in which processes of one mirror divide
them.

The group's leader gives each member its slots, and lets it keep those it has where that is fair. Slots go on
while the group meets: one that has gone elsewhere is shut out by its new owner's first transaction.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.group_member import START_OVER, GroupMember
from ottla.client.peer import PeerLost
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_PROTOCOL_TYPE: Final = "ottla-mirror"
_PROTOCOL: Final = "v1"
_HEARTBEATS_PER_SESSION: Final = 4
_AGAIN_S: Final = 1.0


def divide(slots: int, members: Mapping[str, set[int]]) -> dict[str, list[int]]:
    """Slots for each member, from what each has: as evenly as can be, and with as few changes."""
    names = sorted(members)
    left = set(range(slots))
    shares = {
        name: slots // len(names) + (place < slots % len(names))
        # Those who have most may have one more.
        for place, name in enumerate(sorted(names, key=lambda name: (-len(members[name]), name)))
    }
    given: dict[str, list[int]] = {}
    for name in names:
        given[name] = sorted(members[name] & left)[: shares[name]]
        left -= set(given[name])
    for name in names:
        while len(given[name]) < shares[name]:
            given[name].append(left.pop())
    return {name: sorted(each) for name, each in given.items()}


class Membership:
    """`does` stands for what its settings tell a process to mirror. `changed` is told which slots this
    process has, whenever that is known anew; nothing of them is certain when it was cut off for longer than a
    session."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        slots: int,
        does: str,
        session_timeout_ms: int,
        changed: Callable[[set[int]], None],
    ) -> None:
        self._member = GroupMember(
            cluster,
            group,
            protocol_type=_PROTOCOL_TYPE,
            protocol=_PROTOCOL,
            session_timeout_ms=session_timeout_ms,
        )
        self._slots = slots
        self._does = does
        self._heartbeat_s = session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION
        self._changed = changed
        self._own: set[int] = set()

    async def run(self) -> None:
        while True:
            try:
                said = {"slots": self._slots, "does": self._does, "own": sorted(self._own)}
                assignment = await self._member.join(json.dumps(said).encode(), self._assign)
                self._take(set(json.loads(assignment)["slots"]))
                while True:
                    await asyncio.sleep(self._heartbeat_s)
                    await self._member.heartbeat()
            except KafkaError as error:
                if error.code in START_OVER:
                    self._member.forget()
                    self._take(set())
                elif error.code == ErrorCode.inconsistent_group_protocol:
                    await self._pause(f"{error}; does an Apache MirrorMaker 2 run there? Stop it first")
                elif error.code != ErrorCode.rebalance_in_progress:
                    await self._pause(error)
            except (PeerLost, ClusterUnreachable, TimeoutError, OSError) as error:
                await self._pause(str(error) or "no answer in time")
            except (ValueError, KeyError, TypeError) as error:
                await self._pause(f"somebody else is in it, too: {error!r}")

    async def is_still_member(self) -> bool:
        """As the coordinator says now. While the group meets, who has what is not settled."""
        try:
            await self._member.heartbeat()
        except KafkaError as error:
            if error.code in START_OVER or error.code == ErrorCode.rebalance_in_progress:
                return False
            raise
        return True

    async def leave(self) -> None:
        await self._member.leave("the mirror stops")

    def _take(self, slots: set[int]) -> None:
        self._own = slots
        self._changed(set(slots))

    def _assign(self, said: Mapping[str, bytes]) -> dict[str, bytes]:
        found = {name: json.loads(each) for name, each in said.items()}
        if any((member["slots"], member["does"]) != (self._slots, self._does) for member in found.values()):
            _log.error(
                "processes of the group %s have different settings (topics, names or tasks.max): each "
                "mirrors its part of what it was told; give them the same file",
                self._member.group,
            )
        divided = divide(self._slots, {name: set(member["own"]) for name, member in found.items()})
        return {name: json.dumps({"slots": each}).encode() for name, each in divided.items()}

    async def _pause(self, error: object) -> None:
        _log.warning("the group %s cannot be joined: %s; trying again", self._member.group, error)
        await asyncio.sleep(_AGAIN_S)
