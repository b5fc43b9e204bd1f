"""What a broker costs: CPU time and memory of a process and its descendants, read from Linux."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

CPUCLOCK_SCHED = 2
KIB = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `resident` counts mapped file pages the kernel may drop at any time; `private` does not."""

    resident: int
    private: int


def process_tree(pid: int) -> list[int]:
    tree = [pid]
    for task in _listdir(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            tree += process_tree(int(child))
    return tree


def command_line(pid: int) -> str:
    """Empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process and its descendants, those that ended excluded.

    The kernel's CPU clock of a foreign process counts nanoseconds; /proc/<pid>/stat counts ticks of 10 ms,
    which is too coarse for the short loads.
    """
    total = 0.0
    for member in process_tree(pid):
        try:
            total += time.clock_gettime((~member << 3) | CPUCLOCK_SCHED)
        except OSError:
            continue
    return total


def memory(pid: int) -> Memory:
    """Of a process and its descendants."""
    members = [memory_alone(member) for member in process_tree(pid)]
    return Memory(sum(each.resident for each in members), sum(each.private for each in members))


def memory_alone(pid: int) -> Memory:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return Memory(0, 0)
    sizes = {key: rest.split() for key, _, rest in (line.partition(":") for line in lines)}
    # A process that has ended and waits to be taken note of has no memory.
    resident, private = (int(sizes.get(name, ["0"])[0]) * KIB for name in ("VmRSS", "RssAnon"))
    return Memory(resident, private)


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
