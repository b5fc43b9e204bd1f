"""Changes of the voters that somebody asks the leader for: what takes time around what the core decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeRequest,
    VoterChange,
    VoterChangeResponse,
)
from ottla.raft.peers import Peers
from ottla.raft.voters import ReplicaKey, Voter
from ottla.wire.errors import ErrorCode, KafkaError

Decide = Callable[[VoterChange], Coroutine[Any, Any, VoterChangeResponse]]
"""A step of the core."""


class ChangingVoters:
    def __init__(self, decide: Decide, peers: Peers, timeout_ms: int) -> None:
        self._decide = decide
        self._peers = peers
        self._timeout_s = timeout_ms / 1000

    async def add(self, voter: Voter, *, wait: bool = True) -> VoterChangeResponse:
        """It is asked first what it supports, at the address that the others would use. `wait` for the
        change to be committed, which may need the new voter."""
        response = await self._decide(AddVoterRequest(voter, is_known=False))
        if response.error is not ErrorCode.none:
            return response
        listener = self._peers.listener(voter.listeners)
        versions = None if listener is None else await self._peers.kraft_versions(listener)
        if versions is None:
            return response._replace(
                error=ErrorCode.request_timed_out,
                message=f"New voter {voter.key.id} does not answer at {_where(voter)}",
            )
        response = await self._decide(AddVoterRequest(voter._replace(kraft_versions=versions)))
        return await self._committed(response) if wait else response

    async def remove(self, voter: ReplicaKey) -> VoterChangeResponse:
        return await self._committed(await self._decide(RemoveVoterRequest(voter)))

    async def update(self, request: UpdateVoterRequest) -> VoterChangeResponse:
        """Answered before it is committed: who asks may be needed for that."""
        listener = self._peers.listener(request.voter.listeners)
        if listener is not None and await self._peers.kraft_versions(listener) is None:
            # Nobody could reach it there.
            return VoterChangeResponse(ErrorCode.request_timed_out, request.epoch, None)
        return await self._decide(request)

    async def upgrade(self, request: UpgradeRequest) -> VoterChangeResponse:
        return await self._committed(await self._decide(request))

    async def _committed(self, response: VoterChangeResponse) -> VoterChangeResponse:
        if response.committed is None:
            return response
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(response.committed)
        except TimeoutError:
            text = "The change is in the leader's log, but a majority of the voters has not taken it in time"
            return response._replace(error=ErrorCode.request_timed_out, message=text)
        except KafkaError as refusal:
            error = refusal.code
            if error is ErrorCode.not_controller:
                error = ErrorCode.not_leader_or_follower
            return response._replace(error=error, message=str(refusal))
        return response


def _where(voter: Voter) -> str:
    return ", ".join(f"{each.name}://{each.host}:{each.port}" for each in voter.listeners)
