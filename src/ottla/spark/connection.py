"""A cluster client for code that is not asynchronous: Spark's workers and the driver's callbacks.

The client runs on an event loop in a thread of its own, so batches travel while the worker prepares the
next. A Python worker serves many tasks one after the other; they share the connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from ottla.client.cluster import ClusterClient
from ottla.runtime.net import AsyncioNetwork

T = TypeVar("T")


class Connection:
    """`run` waits for what the client does."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str]) -> None:
        self.cluster = ClusterClient(AsyncioNetwork(), bootstrap_servers, properties)
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._serve, name="ottla-client", daemon=True).start()

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(action, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, action: Coroutine[Any, Any, T]) -> Future[T]:
        """Goes on in the background until its result is asked for."""
        return asyncio.run_coroutine_threadsafe(action, self._loop)

    def call(self, function: Callable[..., object], *given: Any) -> None:
        """On the loop, soon, in the order of the calls."""
        self._loop.call_soon_threadsafe(function, *given)

    def close(self) -> None:
        """Whoever waits for something then waits in vain."""
        self.call(self._end)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _end(self) -> None:
        self.cluster.close()
        self._loop.stop()


_shared: dict[tuple[int, str, tuple[tuple[str, str], ...]], Connection] = {}
_sharing = threading.Lock()


def shared_connection(bootstrap_servers: str, properties: Mapping[str, str]) -> Connection:
    """The connection of this process to that cluster; it stays open for the next task."""
    # A forked process has the entries of its parent but not the threads behind them.
    place = os.getpid(), bootstrap_servers, tuple(sorted(properties.items()))
    with _sharing:
        connection = _shared.get(place)
        if connection is None:
            connection = _shared[place] = Connection(bootstrap_servers, properties)
    return connection
