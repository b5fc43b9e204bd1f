"""Keeps the queries of an application running: one that fails for a reason that passes is started again.

In a thread of its own, so that it does so whatever the program does meanwhile.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.streams.on_spark.progress import explain

logger = logging.getLogger("ottla.streams")

_LOOK_S = 0.1
_BACKOFF_S = 1.0
_BACKOFF_MAX_S = 30.0
# A query that ran this long has got over what made it fail before.
_RECOVERED_S = 300.0
# What comes again with the same records and settings, or says that somebody else runs the application.
_LASTING = re.compile(
    r"\b(RecordError|TopologyError|SerdeError|StoreError|StreamsError|DataLost|InvalidOption|TopicMissing"
    r"|ProducerFenced|InvalidProducerEpoch|STATE_STORE_\w+|STATEFUL_PROCESSOR_\w+|\w*AuthorizationFailed)\b"
)


class Supervised:
    """A query that may be replaced by another one with the same checkpoint."""

    def __init__(self, name: str, start: Callable[[], Any], restarts_max: int) -> None:
        self.name = name
        self._start = start
        self._restarts_max = restarts_max
        self._restarts = 0
        self._due_s: float | None = None
        self._started_s = time.monotonic()
        # Whoever pauses and whoever looks after queries are different threads.
        self._lock = threading.Lock()
        self.is_paused = False
        # Since the application was started.
        self.restarts = 0
        self.query = start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        if self.is_paused or self.query.isActive:
            return False
        return self._due_s is None and self._passing_failure() is None

    @property
    def condition(self) -> str:
        """In a word: running, paused, waiting to be started again, failed for good, or stopped."""
        if self.is_paused:
            return "paused"
        if self.query.isActive:
            return "running"
        if not self.is_over:
            return "waiting"
        return "stopped" if self.failure() is None else "failed"

    def failure(self) -> Exception | None:
        """What ended the last run of it."""
        failure: Exception | None = None if self.query.isActive else self.query.exception()
        return failure

    def pause(self) -> None:
        """Stop it until it is resumed. A micro-batch under way is done again then."""
        with self._lock:
            self.is_paused = True
            self.query.stop()

    def resume(self) -> None:
        with self._lock:
            if self.is_paused:
                self.is_paused, self._due_s, self._started_s = False, None, time.monotonic()
                self.query = self._start()

    def look(self) -> None:
        """Start it again if it has failed and its time has come."""
        with self._lock:
            if not self.is_paused:
                self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        if self._due_s is not None:
            if now_s >= self._due_s:
                self._due_s, self._started_s = None, now_s
                self.restarts += 1
                self.query = self._start()
            return
        if now_s - self._started_s >= _RECOVERED_S:
            self._restarts = 0
        failure = self._passing_failure()
        if failure is not None:
            wait_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2**self._restarts)
            self._restarts += 1
            self._due_s = now_s + wait_s
            logger.warning(
                "%s failed and is started again in %g s (%d of %d): %s",
                self.name,
                wait_s,
                self._restarts,
                self._restarts_max,
                explain(failure),
            )

    def _passing_failure(self) -> Exception | None:
        """What has ended it, if another start may help."""
        failure = self.failure()
        if failure is None or self._restarts >= self._restarts_max or _LASTING.search(str(failure)):
            return None
        return failure


class Supervisor:
    """Looks after queries until one has ended for good or all are stopped."""

    def __init__(self, queries: Sequence[Supervised], every_look: Callable[[], None]) -> None:
        self._queries = queries
        self._every_look = every_look
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streams-supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.wait(_LOOK_S):
            try:
                for each in self._queries:
                    each.look()
                self._every_look()
            except Exception:
                # A query that could not be started is found by the next look; so is Spark, if it is gone.
                logger.exception("the queries could not be looked after")
