"""What this process takes of the machine, as the operating system counts it."""

from __future__ import annotations

import time


def thread_cpu_seconds() -> float:
    """Of the calling thread."""
    return time.thread_time()


def disk_bytes() -> tuple[int, int] | None:
    """Read from disks and written to them by this process; None where nobody counts."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file.read().splitlines())
        return int(counts["read_bytes"]), int(counts["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None
