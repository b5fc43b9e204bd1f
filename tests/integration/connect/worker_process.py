"""A worker of ours in the test's own process, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.connect.plugins import Plugins
from ottla.connect.worker import RunningWorker, running_worker
from ottla.connect.worker_settings import worker_settings

START_S = 60.0
WAIT_S = 60.0


def settings_of(bootstrap_servers: str, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "listeners": "http://127.0.0.1:0",
        "offset.flush.interval.ms": "200",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@contextmanager
def our_worker(
    given: Mapping[str, str], plugins: Plugins | None = None, **options: Any
) -> Iterator[RunningWorker]:
    started: list[RunningWorker | BaseException] = []
    is_up, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_worker(worker_settings(given), plugins=plugins, **options) as worker:
            started.append(worker)
            is_up.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            started.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(START_S)
    if isinstance(started[0], BaseException):
        raise started[0]
    try:
        yield started[0]
    finally:
        stop.set()
        thread.join(START_S)
        for ended in started[1:]:
            if isinstance(ended, BaseException):
                raise ended


def ask(address: str, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status < 300, text
    return json.loads(text) if text else None
