"""Jobs for workers, in a module that they can import."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ottla.runtime.disk import Disk


def numbered(disk: Disk, count: int) -> Iterator[object]:
    for number in range(count):
        yield 1000
        yield f"result {number}"
    yield ("pid", os.getpid(), os.nice(0))


def failing(disk: Disk, path: str) -> Iterator[object]:
    yield 1
    disk.open(path)


def endless(disk: Disk) -> Iterator[object]:
    yield ("pid", os.getpid())
    while True:
        time.sleep(0.001)
        yield 1
