"""What a follower asks of its leader about its own place among the voters.

A voter says where it listens, where the log has it otherwise; where the log does not have the voters, it says
so to each leader, which needs to know before the log can have them. An observer may ask to become a voter
(KIP-1186); one whose disk was lost first has the voter it was before removed.
"""

from __future__ import annotations

from ottla.raft.core import RaftCore
from ottla.raft.log_view import LogView
from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChange,
    VoterChangeResponse,
)
from ottla.raft.roles import Role
from ottla.raft.voter_changes import FIRST_WITH_CHANGES
from ottla.wire.errors import ErrorCode


class OwnPlace:
    def __init__(self, core: RaftCore, log: LogView, *, joins: bool) -> None:
        self._core = core
        self._log = log
        self._joins = joins
        self._told_epoch = -1
        """Whose leader knows what the log does not have."""

    def request(self) -> VoterChange | None:
        core = self._core
        if core.role is not Role.FOLLOWER or not core.own.listeners:
            return None
        is_in_log = self._log.kraft_version >= FIRST_WITH_CHANGES
        known = core.voters.get(core.me.id)
        if core.is_voter:
            is_told = known == core.own if is_in_log else self._told_epoch == core.epoch
            return None if is_told else UpdateVoterRequest(core.epoch, core.own)
        if not self._joins or not is_in_log:
            return None
        return AddVoterRequest(core.own) if known is None else RemoveVoterRequest(known.key)

    def answered(self, request: VoterChange, response: VoterChangeResponse) -> None:
        if isinstance(request, UpdateVoterRequest) and response.error in {
            ErrorCode.none,
            ErrorCode.unsupported_version,
        }:
            self._told_epoch = request.epoch
