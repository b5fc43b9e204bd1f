"""Who writes: one of the registries, chosen in a group of them. The protocol is that of Confluent's registry.

A member says where it is and whether it may lead. The member whom the coordinator asks gives all of them the
same assignment: the leader there is, or else the one with the smallest address.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.group_member import START_OVER, GroupMember
from ottla.client.peer import PeerLost
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_PROTOCOL_TYPE = "sr"
_PROTOCOL = "v0"
_VERSION = 1
_NO_ERROR, _DUPLICATE_URLS = 0, 1
_HEARTBEATS_PER_SESSION = 3
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a registry is for the others of its group."""

    host: str
    port: int
    may_lead: bool = True
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def fields(self, *, leads: bool) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.may_lead,
            "scheme": self.scheme,
            "leader": leads,
        }


def read_identity(fields: dict[str, Any]) -> Identity:
    return Identity(
        fields["host"],
        fields["port"],
        fields.get("master_eligibility", True),
        fields.get("scheme") or "http",
    )


def choose(members: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The assignment for all, from what each member says of itself."""
    identities = {member: read_identity(fields) for member, fields in members.items()}
    eligible = [member for member, identity in identities.items() if identity.may_lead]
    leading = [member for member in eligible if members[member].get("leader")]
    candidates = leading if len(leading) == 1 else eligible
    chosen = min(candidates, key=lambda member: identities[member].url, default=None)
    urls = {identity.url for identity in identities.values()}
    assignment: dict[str, Any] = {
        "version": _VERSION,
        "error": _NO_ERROR if len(urls) == len(members) else _DUPLICATE_URLS,
    }
    if chosen is not None:
        assignment |= {"master": chosen, "master_identity": identities[chosen].fields(leads=False)}
    return assignment


def _assign(said: Mapping[str, bytes]) -> dict[str, bytes]:
    """All get the same."""
    chosen = json.dumps(choose({member: json.loads(each) for member, each in said.items()})).encode()
    return dict.fromkeys(said, chosen)


class Election:
    """Tells of each assignment; whoever leads by it has to make sure of it where it writes."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        identity: Identity,
        session_timeout_ms: int,
        on_leader: Callable[[Identity | None], None],
    ) -> None:
        self._member = GroupMember(
            cluster,
            group,
            protocol_type=_PROTOCOL_TYPE,
            protocol=_PROTOCOL,
            session_timeout_ms=session_timeout_ms,
        )
        self._identity = identity
        self._heartbeat_s = session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION
        self._on_leader = on_leader
        self._leads = False
        self._rejoin = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._join()
                await self._stay()
            except KafkaError as error:
                if error.code in START_OVER:
                    self._member.forget()
                elif error.code != ErrorCode.rebalance_in_progress:
                    await self._pause(error)
            except (PeerLost, ClusterUnreachable, TimeoutError) as error:
                await self._pause(error)
            except (ValueError, KeyError, TypeError) as error:
                # Somebody is in the group who is no registry, or one of another kind.
                await self._pause(error)

    def rejoin(self) -> None:
        """Ask the group again who leads, for one that has doubts."""
        self._rejoin.set()

    async def leave(self) -> None:
        """So that the others need not wait until this one is missed."""
        await self._member.leave("the registry stops")

    async def _pause(self, error: Exception) -> None:
        _log.warning("the group %s of registries cannot be joined: %r", self._member.group, error)
        await asyncio.sleep(_AGAIN_S)

    async def _join(self) -> None:
        self._rejoin.clear()
        said = json.dumps(self._identity.fields(leads=self._leads)).encode()
        self._take(json.loads(await self._member.join(said, _assign)))

    async def _stay(self) -> None:
        while not self._rejoin.is_set():
            try:
                await asyncio.wait_for(self._rejoin.wait(), self._heartbeat_s)
            except TimeoutError:
                await self._member.heartbeat()

    def _take(self, assignment: dict[str, Any]) -> None:
        if assignment.get("error") == _DUPLICATE_URLS:
            _log.error(
                "several registries of the group %s say that they are at one address; give each its own: "
                "--advertised-address",
                self._member.group,
            )
        fields = assignment.get("master_identity")
        leader = None if fields is None else read_identity(fields)
        self._leads = leader is not None and assignment.get("master") == self._member.id
        self._on_leader(leader)
