"""A client that asks for much and reads none of it: the kernel takes little of the answer in one go.

What it copies for such a client in one call nobody else is served in. Asserted in bytes, since how long they
take depends on the machine.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest
import uvloop

from ottla.runtime.net import WAITING_IN_KERNEL_BYTES_MAX, AsyncioNetwork

MIB = 1 << 20
LONG = 30 * MIB
WAIT_S = 60
TAKEN_BYTES_MAX = WAITING_IN_KERNEL_BYTES_MAX + 512 * 1024
"""With what is under way to a client that has not read anything yet."""


class Answering(asyncio.Protocol):
    def __init__(self, connected: asyncio.Future[asyncio.Transport]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connected.set_result(cast(asyncio.Transport, transport))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_kernel_takes_little_for_a_client_that_does_not_read(host: str) -> None:
    answer = bytes(LONG)

    async def run() -> None:
        connected: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        listener = await AsyncioNetwork().listen(lambda: Answering(connected), host, 0)
        with await asyncio.to_thread(socket.create_connection, listener.address, WAIT_S) as reader:
            transport = await asyncio.wait_for(connected, WAIT_S)
            transport.write(answer)
            taken = LONG - transport.get_write_buffer_size()
            assert 0 < taken < TAKEN_BYTES_MAX, f"{taken / MIB:.1f} MiB at once"
            received = asyncio.ensure_future(asyncio.to_thread(read_all, reader))
            transport.close()
            assert await asyncio.wait_for(received, WAIT_S) == LONG
        await listener.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def read_all(reader: socket.socket) -> int:
    count = 0
    while part := reader.recv(MIB):
        count += len(part)
    return count
