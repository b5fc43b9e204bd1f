"""A process as one of a group that divides something: the classic group protocol, for clients that consume
nothing.

The coordinator asks one member to decide for all; what members say of themselves, and what they are given, is
theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

START_OVER: Final = frozenset(
    (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id)
)
"""The coordinator has forgotten this member, or never knew it: `forget`, and join again."""


class GroupMember:
    """`join`, then a `heartbeat` several times per session, until one says that the group meets anew.

    Joining waits for the other members, and everything else on the same connection with it: a member wants a
    client of its own.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        *,
        protocol_type: str,
        protocol: str,
        session_timeout_ms: int,
    ) -> None:
        self.group = group
        self.id = ""
        self._cluster = cluster
        self._protocol_type = protocol_type
        self._protocol = protocol
        self._session_timeout_ms = session_timeout_ms
        self._generation = -1

    async def join(self, said: bytes, assign: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> bytes:
        """What this member is given. `assign` decides for all, by what each of them said."""
        answer = await self._cluster.retried(lambda: self._ask_to_join(said))
        self.id = answer.member_id
        self._generation = answer.generation_id
        assignments = []
        if answer.leader == answer.member_id:
            given = assign({row.member_id: row.metadata for row in answer.members})
            assignments = [{"member_id": member, "assignment": each} for member, each in given.items()]
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            {
                "protocol_type": self._protocol_type,
                "protocol_name": self._protocol,
                "assignments": assignments,
            },
        )
        assignment: bytes = synced.assignment
        return assignment

    async def heartbeat(self) -> None:
        """REBALANCE_IN_PROGRESS when the group meets anew."""
        await self._ask(ApiKey.HEARTBEAT, {})

    async def leave(self, reason: str) -> None:
        """So that the others need not wait until this one is missed."""
        if self.id:
            member = {"member_id": self.id, "reason": reason}
            values = {"group_id": self.group, "members": [member], "member_id": self.id}
            await self._cluster.ask_coordinator(GROUP, self.group, ApiKey.LEAVE_GROUP, values)

    def forget(self) -> None:
        self.id = ""

    async def _ask_to_join(self, said: bytes) -> Any:
        values = {
            "group_id": self.group,
            "session_timeout": self._session_timeout_ms,
            "rebalance_timeout": self._session_timeout_ms,
            "protocol_type": self._protocol_type,
            "protocols": [{"name": self._protocol, "metadata": said}],
        }
        peer = await self._cluster.coordinator(GROUP, self.group)
        while True:
            async with asyncio.timeout(self._session_timeout_ms / 1000 + self._cluster.timeouts.request_s):
                answer = await peer.ask(ApiKey.JOIN_GROUP, {**values, "member_id": self.id})
            if answer.error_code != ErrorCode.member_id_required:
                break
            self.id = answer.member_id
        raise_for_code(answer.error_code, None, f"joining the group {self.group}")
        return answer

    async def _ask(self, api_key: ApiKey, values: dict[str, Any]) -> Any:
        place = {"group_id": self.group, "generation_id": self._generation, "member_id": self.id}
        return await self._cluster.ask_coordinator(GROUP, self.group, api_key, {**place, **values})
