"""A proxy that knows just enough of the protocol to lose, repeat, delay and reorder Produce requests.

    with FaultyProxy(seed=1) as proxy:
        broker(advertised at proxy.port); proxy.target_port = broker.port

Nothing is reordered within a connection, as in any network. But a connection that breaks may leave a request
behind that arrives after its repetition has come over the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

PRODUCE = 0
HOST = "127.0.0.1"
GHOST_DELAY_S = (0.0, 0.3)
LOST_ANSWER_S = 0.02

FAULTS = ("repeat", "ghost", "late", "delay", "lose request", "lose answer", "cut")
FAULT_CHANCE = 0.35


class FaultyProxy:
    def __init__(self, seed: int) -> None:
        self.target_port = 0
        self.counts: Counter[str] = Counter()
        self.chance = random.Random(seed)
        self.is_faulty = True
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, sock=self._listener), self._loop
        ).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def cancel() -> None:
            for task in [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
                task.cancel()

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._listener.close()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fault(self) -> str | None:
        if not self.is_faulty or self.chance.random() >= FAULT_CHANCE:
            return None
        fault = self.chance.choice(FAULTS)
        self.counts[fault] += 1
        return fault

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            writer.close()
            return
        # asyncio reports tasks of a server that are cancelled as failures.
        with contextlib.suppress(asyncio.CancelledError):
            await _Connection(self, (reader, writer), target).run()

    async def haunt(self, frame: bytes) -> None:
        """The request arrives once more, late and over another connection; nobody sees the answer."""
        await asyncio.sleep(self.chance.uniform(*GHOST_DELAY_S))
        reader, writer = await asyncio.open_connection(HOST, self.target_port)
        writer.write(frame)
        await _read_frame(reader)
        writer.close()


class _Connection:
    def __init__(
        self,
        proxy: FaultyProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        target: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client_reader, self._client = client
        self._target_reader, self._target = target
        self._expected: deque[bool] = deque()
        """For each answer to come, whether it shall reach the client."""

    async def run(self) -> None:
        try:
            await asyncio.wait(
                [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._responses())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._cut()

    def _cut(self) -> None:
        self._client.close()
        self._target.close()

    async def _requests(self) -> None:
        while frame := await _read_frame(self._client_reader):
            (api_key,) = struct.unpack_from(">h", frame, 4)
            if api_key == PRODUCE:
                await self._produce(frame)
            else:
                self._forward(frame)

    async def _produce(self, frame: bytes) -> None:
        match self._proxy.fault():
            case "repeat":
                self._forward(frame)
                self._forward(frame, is_answered=False)
            case "ghost":
                self._forward(frame)
                self._proxy.spawn(self._proxy.haunt(frame))
            case "late":
                self._proxy.spawn(self._proxy.haunt(frame))
                self._cut()
            case "delay":
                await asyncio.sleep(self._proxy.chance.random() * 0.02)
                self._forward(frame)
            case "lose request":
                self._cut()
            case "lose answer":
                self._forward(frame, is_answered=False)
                await asyncio.sleep(LOST_ANSWER_S)
                self._cut()
            case "cut":
                self._forward(frame)
                self._cut()
            case _:
                self._forward(frame)

    def _forward(self, frame: bytes, *, is_answered: bool = True) -> None:
        self._expected.append(is_answered)
        self._target.write(frame)

    async def _responses(self) -> None:
        while frame := await _read_frame(self._target_reader):
            if self._expected.popleft():
                self._client.write(frame)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """With its length; empty at the end of the connection."""
    try:
        size = await reader.readexactly(4)
        return size + await reader.readexactly(int.from_bytes(size, "big"))
    except (asyncio.IncompleteReadError, OSError):
        return b""
