"""`ottla stop`: ends the broker that serves a data directory, and waits until it has."""

from __future__ import annotations

import argparse
import glob
import os
import select
import signal
import sys
import time

from ottla.cli.broker import pid_file
from ottla.cli.framework.tool import Option, Tool


def run(options: argparse.Namespace) -> int:
    data_dir = os.path.abspath(options.data_dir)
    served = [each for each in (data_dir, *_brokers_in(data_dir)) if pid_file.read(each) and _is_served(each)]
    if not served:
        print(f"ottla: no broker serves {data_dir}; name its directory with --data-dir", file=sys.stderr)
        return 1
    # Who runs several goes first, and stops those that it runs: others were started by themselves.
    return max(_stop(each, options.timeout) for each in served)


def _brokers_in(data_dir: str) -> list[str]:
    """The directories of a cluster's brokers, where they are in this one."""
    return sorted(glob.glob(f"{glob.escape(data_dir)}/broker-*/data"))


def _stop(data_dir: str, timeout_seconds: float) -> int:
    pid = pid_file.read(data_dir)
    if pid is None or not _is_served(data_dir):
        return 0  # with the one before
    try:
        ended = _end(pid, data_dir, timeout_seconds)
    except PermissionError:
        print(f"ottla: process {pid} belongs to another user", file=sys.stderr)
        return 1
    if not ended:
        print(f"ottla: process {pid} has not ended after {timeout_seconds:g} s", file=sys.stderr)
        return 1
    print(f"Stopped the broker of {data_dir} (process {pid})")
    return 0


def _end(pid: int, data_dir: str, timeout_seconds: float) -> bool:
    """Ask the process to stop and wait until it has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):
        # No such call on this system: the lock goes with the process, so wait for that.
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while _is_served(data_dir):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        return bool(select.select([process], [], [], timeout_seconds)[0])
    finally:
        os.close(process)


def _is_served(data_dir: str) -> bool:
    """A process id in a file proves nothing after a crash; the lock on the directory does."""
    from ottla.log.names import LOCK_FILE
    from ottla.runtime.disk import DiskLocked, PosixDisk

    path = f"{data_dir}/{LOCK_FILE}"
    if not os.path.exists(path):
        return False
    try:
        PosixDisk().lock(path).release()
    except DiskLocked:
        return True
    return False


TOOL = Tool(
    name="stop",
    description="Stop the broker of a data directory, or several in it, and wait until they have ended.",
    run=run,
    options=(
        Option("data-dir", "its data directory", "DIR", default="ottla-data"),
        Option("timeout", "how long to wait", "SECONDS", float, default=60.0),
    ),
    examples=("", "--data-dir /var/lib/ottla"),
    speaks_json=False,
)
