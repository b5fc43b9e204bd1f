"""The audit log: a line of JSON for each thing that was refused and, if asked for, what administrators did.

Lines are written by a thread. Only so many wait for it; of what does not fit, the number is written instead.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.runtime.seldom import Seldom
from ottla.wire.acls import Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.api import ApiKey

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.runtime import Runtime
    from ottla.runtime.disk import File
    from ottla.security.authorizer import Verdict

log = logging.getLogger(__name__)

WAITING_MAX = 10_000
WRITTEN_AT_ONCE_MAX = 1000


class AuditLog:
    def __init__(
        self,
        runtime: Runtime,
        path: str,
        *,
        bytes_max: int,
        files_max: int,
        allowed: frozenset[ApiKey] = frozenset(),
    ) -> None:
        """`allowed` are the APIs of which also what is allowed is written."""
        self._runtime = runtime
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._allowed = allowed
        self._waiting: deque[bytes] = deque()
        self._has_some = asyncio.Event()
        self._file: File | None = None
        self._seldom = Seldom(runtime.clock)
        self.dropped = 0
        """Since the last line that said so."""
        self.dropped_total = 0

    @classmethod
    def from_config(
        cls, runtime: Runtime, config: BrokerConfig, administrative: frozenset[ApiKey]
    ) -> AuditLog | None:
        path = config.string("ottla.audit.log")
        if not path:
            return None
        asked = config.string("ottla.audit.allowed") == "administrative"
        return cls(
            runtime,
            path,
            bytes_max=config.integer("ottla.audit.max.bytes"),
            files_max=config.integer("ottla.audit.files"),
            allowed=administrative if asked else frozenset(),
        )

    def wants(self, api: ApiKey, verdict: Verdict) -> bool:
        return not verdict.allowed or api in self._allowed

    def note(
        self,
        who: dict[str, Any],
        api: ApiKey,
        operation: Operation,
        kind: AclResource,
        name: str,
        verdict: Verdict,
    ) -> None:
        self._put(
            {
                "time": self._time(),
                "allowed": verdict.allowed,
                **who,
                "api": api.name,
                "operation": operation.name,
                "resourceType": kind.name,
                "resource": name,
                "reason": verdict.reason,
                **({} if verdict.rule is None else {"rule": _rule(verdict.rule)}),
            }
        )

    def _time(self) -> str:
        now = datetime.fromtimestamp(self._runtime.clock.now_ms() / 1000, UTC)
        return now.isoformat(timespec="milliseconds")

    def _put(self, entry: dict[str, Any]) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            self.dropped_total += 1
            return
        self._waiting.append(json.dumps(entry, ensure_ascii=False).encode(errors="replace") + b"\n")
        self._has_some.set()

    async def run(self) -> None:
        """For as long as the node lives."""
        while True:
            await self._has_some.wait()
            await self._write_some()

    async def close(self) -> None:
        """Write what still waits."""
        while self._waiting:
            await self._write_some()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def _write_some(self) -> None:
        lines = [self._waiting.popleft() for _ in range(min(len(self._waiting), WRITTEN_AT_ONCE_MAX))]
        if not self._waiting:
            self._has_some.clear()
        dropped, self.dropped = self.dropped, 0
        if dropped:
            lines.append(json.dumps({"time": self._time(), "dropped": dropped}).encode() + b"\n")
        try:
            await self._runtime.offload.run(self._write, b"".join(lines))
        except OSError as error:
            self.dropped += len(lines) - bool(dropped) + dropped
            self.dropped_total += len(lines) - bool(dropped)
            if self._seldom.is_due():
                log.error("the audit log cannot be written, what it would have said is lost: %s", error)

    def _write(self, data: bytes) -> None:
        if self._file is not None and not self._file.is_in_place():
            # Somebody else takes the file away now and then, as logrotate does.
            self._file.close()
            self._file = None
        if self._file is not None and self._file.size + len(data) > self._bytes_max and self._file.size:
            self._file.close()
            self._file = None
            self._rotate()
        if self._file is None:
            self._file = self._runtime.disk.open(self._path, create=True, private=True)
        self._file.append([data])

    def _rotate(self) -> None:
        """The newest of the older ones is called .1."""
        disk = self._runtime.disk
        oldest = self._files_max - 1
        if oldest < 1:
            disk.remove(self._path)
            return
        if disk.exists(f"{self._path}.{oldest}"):
            disk.remove(f"{self._path}.{oldest}")
        for number in range(oldest - 1, 0, -1):
            if disk.exists(f"{self._path}.{number}"):
                disk.rename(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        disk.rename(self._path, f"{self._path}.1")


def _rule(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": AclResource(acl.resource_type).name,
        "resource": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name,
        "permission": Permission(acl.permission).name,
    }
