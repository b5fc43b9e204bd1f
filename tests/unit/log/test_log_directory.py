"""A data directory that is full: what is said of it, and when that is over."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.directory import LogDir

MIB = 1024 * 1024


class Disk:
    usable_bytes = 0

    def usage(self, path: str) -> tuple[int, int]:
        return 100_000 * MIB, self.usable_bytes


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_little_room_is_not_called_room_while_writes_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = Disk(), Clock()
    runtime: Any = SimpleNamespace(disk=disk, clock=clock)
    directory = LogDir(runtime, "/data", lambda failed: None)
    disk.usable_bytes = 4096
    for _ in range(20):
        directory.refused(OSError(errno.ENOSPC, "No space left on device"), "writing")
        clock.now += 1
        directory.notice_room()
    assert directory.is_full
    assert len(caplog.records) == 1
    # Whoever still writes needs no more than there is.
    clock.now += 30
    directory.notice_room()
    assert not directory.is_full
    directory.refused(OSError(errno.ENOSPC, "No space left on device"), "writing")
    disk.usable_bytes = 200 * MIB
    directory.notice_room()
    assert not directory.is_full
    said = [record.getMessage().split(" (")[0] for record in caplog.records]
    assert said == [
        "/data has no room left",
        "/data has room again: 4096 bytes",
        "/data has no room left",
        f"/data has room again: {200 * MIB} bytes",
    ]
