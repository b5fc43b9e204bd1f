"""A broker on a thread of this process: no process to spawn, ready within milliseconds of the first."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import uvloop

from ottla.config import BrokerConfig
from ottla.node import Node
from ottla.runtime import real_runtime
from ottla.testing.settings import SettingValue, properties

_STOP_SECONDS_MAX = 30


class InProcessBroker:
    """A real broker: real sockets, real files, its own event loop.

    Without `data_dir` the data is in a temporary directory that goes when the broker stops.
    """

    host = "127.0.0.1"

    def __init__(
        self, settings: Mapping[str, SettingValue] | None = None, data_dir: str | None = None
    ) -> None:
        self._settings = properties(settings)
        self._keeps_data = data_dir is not None
        self.data_dir = data_dir or ""
        self.port = 0
        self.ports: dict[str, int] = {}
        """Of all listeners, by their names."""
        self.cluster_id = ""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> InProcessBroker:
        """Returns when clients can connect. After `stop` it starts again on the same port and data."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        if not self.data_dir:
            self.data_dir = tempfile.mkdtemp(prefix="ottla-")
        config = BrokerConfig.from_properties(
            {
                "listeners": f"PLAINTEXT://{self.host}:{self.port}",
                **self._settings,
                "log.dirs": self.data_dir,
            }
        )
        self._ready.clear()
        # A daemon, so that a test run that is interrupted ends without waiting for its brokers.
        self._thread = threading.Thread(target=self._run, args=(config,), name="ottla-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self.close()
        return self

    def stop(self) -> None:
        """A clean shutdown: requests in flight are answered, data is synced."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None and thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(_STOP_SECONDS_MAX)
        if thread.is_alive():
            raise TimeoutError(f"the broker has not stopped after {_STOP_SECONDS_MAX} s")
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Stop, and remove the data unless it is in a directory of the caller's."""
        try:
            self.stop()
        finally:
            if not self._keeps_data and self.data_dir:
                shutil.rmtree(self.data_dir, ignore_errors=True)
                self.data_dir = ""

    def __enter__(self) -> InProcessBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, config: BrokerConfig) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(config))
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        node = Node(real_runtime(), config)
        await node.start()
        self.port = node.address[1]
        self.ports = {endpoint.listener: endpoint.port for endpoint in node.advertised}
        self.cluster_id = node.cluster_id
        self._ready.set()
        failed = asyncio.ensure_future(node.wait_failed())
        asked = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({failed, asked}, return_when=asyncio.FIRST_COMPLETED)
        await node.stop()
        if failed.done():
            raise failed.result()


@contextmanager
def broker(
    *, set: Mapping[str, SettingValue] | None = None, data_dir: str | None = None
) -> Iterator[InProcessBroker]:
    """A running broker for the length of a `with` block.

    `set` are settings by their names in `server.properties`: `broker(set={"message.max.bytes": 20_000_000})`.
    """
    with InProcessBroker(set, data_dir) as running:
        yield running
