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
from typing import Any, Final

from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import ClusterUnreachable, raise_for_code
from ottla.client.peer import PeerLost
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_PROTOCOL_TYPE: Final = "ottla-mirror"
_PROTOCOL: Final = "v1"
_HEARTBEATS_PER_SESSION: Final = 4
_AGAIN_S: Final = 1.0
# The coordinator has forgotten this member, or never knew it.
_START_OVER: Final = frozenset((ErrorCode.unknown_member_id, ErrorCode.illegal_generation))


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
        self._cluster = cluster
        self._group = group
        self._slots = slots
        self._does = does
        self._session_timeout_ms = session_timeout_ms
        self._changed = changed
        self._member_id = ""
        self._generation = -1
        self._own: set[int] = set()

    async def run(self) -> None:
        while True:
            try:
                await self._join()
                while True:
                    await asyncio.sleep(self._session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION)
                    await self._ask(ApiKey.HEARTBEAT, {})
            except KafkaError as error:
                if error.code in _START_OVER:
                    self._forget()
                elif error.code == ErrorCode.inconsistent_group_protocol:
                    await self._pause(f"{error}; does an Apache MirrorMaker 2 run there? Stop it first")
                elif error.code != ErrorCode.rebalance_in_progress:
                    await self._pause(error)
            except (PeerLost, ClusterUnreachable, TimeoutError, OSError) as error:
                await self._pause(error)
            except (ValueError, KeyError, TypeError) as error:
                await self._pause(f"somebody else is in it, too: {error!r}")

    async def is_still_member(self) -> bool:
        """As the coordinator says now. While the group meets, who has what is not settled."""
        try:
            await self._ask(ApiKey.HEARTBEAT, {})
        except KafkaError as error:
            if error.code in _START_OVER or error.code == ErrorCode.rebalance_in_progress:
                return False
            raise
        return True

    async def leave(self) -> None:
        """So that the others need not wait until this one is missed."""
        if self._member_id:
            member = {"member_id": self._member_id, "reason": "the mirror stops"}
            values = {"group_id": self._group, "members": [member], "member_id": self._member_id}
            await self._cluster.ask_coordinator(GROUP, self._group, ApiKey.LEAVE_GROUP, values)

    def _forget(self) -> None:
        self._member_id = ""
        self._own = set()
        self._changed(set())

    async def _pause(self, error: object) -> None:
        _log.warning("the group %s cannot be joined: %s; trying again", self._group, error)
        await asyncio.sleep(_AGAIN_S)

    async def _join(self) -> None:
        answer = await self._cluster.retried(self._ask_to_join)
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        assignments = []
        if answer.leader == answer.member_id:
            found = {row.member_id: json.loads(row.metadata) for row in answer.members}
            if any(
                (member["slots"], member["does"]) != (self._slots, self._does) for member in found.values()
            ):
                _log.error(
                    "processes of the group %s have different settings (topics, names or tasks.max): each "
                    "mirrors its part of what it was told; give them the same file",
                    self._group,
                )
            divided = divide(self._slots, {name: set(member["own"]) for name, member in found.items()})
            assignments = [
                {"member_id": name, "assignment": json.dumps({"slots": each}).encode()}
                for name, each in divided.items()
            ]
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            {"protocol_type": _PROTOCOL_TYPE, "protocol_name": _PROTOCOL, "assignments": assignments},
        )
        self._own = set(json.loads(synced.assignment)["slots"])
        self._changed(set(self._own))

    async def _ask_to_join(self) -> Any:
        metadata = json.dumps({"slots": self._slots, "does": self._does, "own": sorted(self._own)}).encode()
        values = {
            "group_id": self._group,
            "session_timeout": self._session_timeout_ms,
            "rebalance_timeout": self._session_timeout_ms,
            "protocol_type": _PROTOCOL_TYPE,
            "protocols": [{"name": _PROTOCOL, "metadata": metadata}],
        }
        peer = await self._cluster.coordinator(GROUP, self._group)
        while True:
            async with asyncio.timeout(self._session_timeout_ms / 1000 + self._cluster.timeouts.request_s):
                answer = await peer.ask(ApiKey.JOIN_GROUP, {**values, "member_id": self._member_id})
            if answer.error_code != ErrorCode.member_id_required:
                break
            self._member_id = answer.member_id
        raise_for_code(answer.error_code, None, f"joining the group {self._group}")
        return answer

    async def _ask(self, api_key: ApiKey, values: dict[str, Any]) -> Any:
        place = {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
        }
        return await self._cluster.ask_coordinator(GROUP, self._group, api_key, {**place, **values})
