"""A well-behaved client beside an attack, and what the attacks have in common."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

from raw_client import KIB, RawConnection, api_versions

MIB = 1024 * KIB
ANSWER_SECONDS_MAX = 3.0
"""A second is what is meant; the rest is for test machines that are busy with other tests."""


class Bystander:
    """Asks something small all the time, and remembers how long the slowest answer took."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._connection = RawConnection(bootstrap_servers, timeout_s=60)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._asked_at: float | None = None
        self._slowest_s = 0.0
        self.answers = 0
        self.failure: BaseException | None = None

    @property
    def slowest_s(self) -> float:
        """Of all answers, or of the one that is still waited for."""
        asked_at = self._asked_at
        waiting_s = 0.0 if asked_at is None else time.monotonic() - asked_at
        return max(self._slowest_s, waiting_s)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._connection.close()

    def assert_was_served(self) -> None:
        before = self.answers
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while self.answers < before + 3 and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.failure is None, f"a bystander was cut off: {self.failure!r}"
        assert self.slowest_s < ANSWER_SECONDS_MAX, f"a bystander waited {self.slowest_s:.1f} s"
        assert self.answers >= before + 3, f"{self.answers - before} answers in {ANSWER_SECONDS_MAX} s"

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._asked_at = time.monotonic()
                api_versions(self._connection)
                self._slowest_s = max(self._slowest_s, time.monotonic() - self._asked_at)
                self._asked_at = None
                self.answers += 1
                self._stopping.wait(0.02)
        except OSError as error:
            self.failure = error


def memory_bytes(pid: int) -> int:
    """Private memory and anonymous mappings, whichever way they were made."""
    found = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            found += int(line.split()[1]) * KIB
    return found


def allow_connections(count: int) -> None:
    """Of this test process: it needs a descriptor for each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
