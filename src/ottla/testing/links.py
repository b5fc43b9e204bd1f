"""The network between the brokers of a test, as far as they can tell: it can be cut, and it can be slow.

Brokers know each other by the addresses of relays, which run on a thread of the test process. Who calls is
said in the first bytes of a connection, since a request names the client that sends it. Clients call the
brokers themselves.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from ottla.config.local_cluster import HOST

T = TypeVar("T")

_WAIT_S = 60.0
_CHUNK = 1 << 16
_CHUNKS_MAX = 64
"""On the way in one direction of a connection. Who sends more has to wait, as for a full window."""
# Length of the request, API key and version, correlation id, length of the client id.
_HEAD = struct.Struct(">ihhih")
_CLIENT_ID_MAX = 200
_NODE = re.compile(rb"(?:broker|raft-client)-(\d+)")
_NOBODY = -1


class Relay(NamedTuple):
    node: int
    """To whom it leads."""
    port: int
    """Where it listens."""
    target: int
    """Where the node does."""


class Links:
    """What is on the way when a link is cut stays there, and arrives when it is mended."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-links", daemon=True)
        self._thread.start()
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._cut: set[int] = set()
        self._delay_s: dict[int, float] = {}
        self._mended = asyncio.Event()

    # From the thread of the test.

    def open(self, relays: list[Relay]) -> None:
        """The node is there: others can connect to it."""
        self._do(self._open(relays))

    def close(self, node: int) -> None:
        """The node is gone: others are refused."""
        self._do(self._close(node))

    def isolate(self, node: int) -> None:
        """Nothing goes to the node, nor comes from it."""
        self._do(self._set(node, cut=True, delay_s=self._delay_s.get(node, 0.0)))

    def slow(self, node: int, seconds: float) -> None:
        """All that goes to the node or comes from it takes so much longer, each way."""
        self._do(self._set(node, cut=node in self._cut, delay_s=seconds))

    def mend(self, node: int) -> None:
        self._do(self._set(node, cut=False, delay_s=0.0))

    def is_isolated(self, node: int) -> bool:
        return node in self._cut

    def end(self) -> None:
        if self._thread.is_alive():
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_WAIT_S)
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    # On the thread of the relays.

    async def _open(self, relays: list[Relay]) -> None:
        for relay in relays:

            def accepted(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Relay = relay
            ) -> None:
                task = self._loop.create_task(self._carry(reader, writer, relay))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

            server = await asyncio.start_server(accepted, HOST, relay.port)
            self._servers.setdefault(relay.node, []).append(server)

    async def _close(self, node: int) -> None:
        for server in self._servers.pop(node, []):
            server.close()

    async def _set(self, node: int, *, cut: bool, delay_s: float) -> None:
        self._delay_s[node] = delay_s
        if cut:
            self._cut.add(node)
        else:
            self._cut.discard(node)
            mended, self._mended = self._mended, asyncio.Event()
            mended.set()

    async def _end(self) -> None:
        for node in list(self._servers):
            await self._close(node)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Relay) -> None:
        """One connection, from its first byte to the end."""
        pair = (_NOBODY, relay.node)
        far_writer: asyncio.StreamWriter | None = None
        try:
            head = await reader.readexactly(_HEAD.size)
            client_id = await reader.readexactly(min(max(_HEAD.unpack(head)[-1], 0), _CLIENT_ID_MAX))
            named = _NODE.match(client_id)
            pair = (int(named[1]) if named else _NOBODY, relay.node)
            await self._pass(pair)
            far_reader, far_writer = await asyncio.open_connection(HOST, relay.target)
            far_writer.write(head + client_id)
            ways = [
                self._loop.create_task(self._one_way(reader, far_writer, pair)),
                self._loop.create_task(self._one_way(far_reader, writer, pair)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            # As if it had been refused, or had ended.
            return
        finally:
            for end in (writer, far_writer):
                if end is not None:
                    end.close()

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: tuple[int, int]
    ) -> None:
        """Until the end, which travels as the bytes before it do."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
        arriving = self._loop.create_task(self._arrive(under_way, writer, pair))
        try:
            data = b"begin"
            while data:
                try:
                    data = await reader.read(_CHUNK)
                except OSError:
                    data = b""
                delay_s = sum(self._delay_s.get(node, 0.0) for node in pair)
                await under_way.put((self._loop.time() + delay_s, data))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(
        self,
        under_way: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        pair: tuple[int, int],
    ) -> None:
        while True:
            due, data = await under_way.get()
            if (early_s := due - self._loop.time()) > 0:
                await asyncio.sleep(early_s)
            await self._pass(pair)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def _pass(self, pair: tuple[int, int]) -> None:
        """Until nothing is cut between the two."""
        while not self._cut.isdisjoint(pair):
            await self._mended.wait()
