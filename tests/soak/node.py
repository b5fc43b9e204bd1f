"""The broker under test: the same process all night, except where it is meant to be started again."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.raw_client import private_memory_bytes

from ottla.testing import BrokerProcess

MIB = 1 << 20
DESCRIPTORS = 1024
SAMPLE_S = 1.0
SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.segment.bytes": 4 * MIB,
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
    "log.flush.interval.ms": 1000,
    "group.initial.rebalance.delay.ms": 100,
    "auto.create.topics.enable": "false",
}


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[bool]:
    """A file system of its own that an attack can fill, where mounting is allowed; False elsewhere."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "ottla-soak", str(path)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=False)


def _floor(samples: list[int]) -> float:
    """The tenth percentile: a single sample may have been taken in a lucky moment."""
    return statistics.quantiles(samples, n=10)[0] if len(samples) > 1 else samples[0]


class Node:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._broker = BrokerProcess(SETTINGS, data_dir=str(data_dir))
        self._starting = threading.Lock()
        self._memory: list[int] = []
        self.start()

    @property
    def servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._broker.pid

    @property
    def log(self) -> str:
        return self._broker.log

    @property
    def is_running(self) -> bool:
        """The process that was started last, and not one that has ended."""
        return self._broker.is_running

    def start(self) -> None:
        # The broker inherits the limit that attacks are to reach; they themselves need more.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
        try:
            self._broker.start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if hard > soft else (soft, hard))
        # A process that starts anew says nothing about growth of the one before.
        self._memory = []

    def stop(self) -> int:
        return self._broker.stop(60)

    def kill(self) -> None:
        os.kill(self.pid, 0)
        self._broker.kill9()

    def close(self) -> None:
        self._broker.close()

    def sample_memory(self) -> None:
        self._memory.append(private_memory_bytes(self.pid))

    def memory_then_and_now(self) -> tuple[float, float]:
        """What was kept between attacks, in the first and the last third of the process's life, in MiB.

        Not the median: an attack takes hundreds of MiB for some seconds, and how many attacks of which kind
        happen in a third is chance. What leaks is there between them as well.
        """
        third = max(len(self._memory) // 3, 1)
        return _floor(self._memory[:third]) / MIB, _floor(self._memory[-third:]) / MIB
