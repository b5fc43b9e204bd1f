"""The transport of TLS by itself: what it holds for slow clients, what waits for whom, how it ends."""

from __future__ import annotations

import asyncio
import mmap
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop
from closed_broker import Files

from ottla.runtime import tls
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tls import FIRST_READ_BYTES_MAX, READ_BYTES_MAX, SLICE_BYTES, UNSENT_BYTES_MAX

MIB = 1 << 20
LONG = 30 * MIB
HOST = "127.0.0.1"
WAIT_S = 60


class App(asyncio.BufferedProtocol):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.received = b""
        self.is_paused = False
        self.was_paused = False
        self.entered = asyncio.Event()
        self.changed = asyncio.Event()
        self.lost = asyncio.Event()
        self._buffer = bytearray(100_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.entered.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.changed.set()

    def pause_writing(self) -> None:
        self.is_paused = self.was_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def wait_received(self, count: int) -> bytes:
        while len(self.received) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), WAIT_S)
        return self.received


class Door:
    handshake_seconds_max = 30.0

    def __init__(self, files: Files) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(files.server)
        self.app = App()
        self.failures: list[OSError] = []
        self.ended = 0

    def begin(self, peer: tuple[str, int]) -> ssl.SSLContext:
        return self.context

    def enter(self, peer: tuple[str, int]) -> App:
        return self.app

    def failed(self, peer: tuple[str, int], error: OSError) -> None:
        self.failures.append(error)

    def end(self, peer: tuple[str, int]) -> None:
        self.ended += 1


def client(files: Files, port: int, first: bytes = b"") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=files.authority)
    connection = socket.create_connection((HOST, port), timeout=WAIT_S)
    made = context.wrap_socket(connection, server_hostname=HOST)
    if first:
        made.sendall(first)
    return made


def read_all(connection: socket.socket) -> bytes:
    received = bytearray()
    while part := connection.recv(MIB):
        received += part
    return bytes(received)


def serve(files: Files, act: Callable[[Door, int], Awaitable[None]]) -> Door:
    """`act` gets the door and the port."""

    async def run() -> Door:
        door = Door(files)
        listener = await AsyncioNetwork().listen_tls(door, HOST, 0)
        try:
            await act(door, listener.address[1])
        finally:
            await listener.close()
        return door

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def test_a_client_that_does_not_read_holds_next_to_nothing(files: Files) -> None:
    answer = memoryview(mmap.mmap(-1, LONG))
    answer[:4], answer[-4:] = b"from", b"upto"

    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port) as reader:
            await asyncio.wait_for(door.app.entered.wait(), WAIT_S)
            transport = cast(tls.TlsTransport, door.app.transport)
            transport.set_write_buffer_limits(MIB)
            transport.writelines([answer[:10], answer[10:]])
            assert door.app.is_paused
            before = -1
            while before != (before := transport.get_write_buffer_size()):
                await asyncio.sleep(0.05)
            # The kernel has taken some. Of the rest hardly anything is encrypted.
            assert before > LONG // 2
            raw = transport._raw
            assert raw is not None
            assert raw.get_write_buffer_size() <= UNSENT_BYTES_MAX + 2 * SLICE_BYTES
            received = asyncio.ensure_future(asyncio.to_thread(read_all, reader))
            transport.close()
            assert await asyncio.wait_for(received, WAIT_S) == answer
            await asyncio.wait_for(door.app.lost.wait(), WAIT_S)

    serve(files, act)


def test_little_is_encrypted_before_it_is_the_turn_of_others(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the client reads. In bytes, since the time that they take depends on the machine."""
    in_one_turn: list[int] = []
    send = tls.TlsTransport._send

    def counted(transport: tls.TlsTransport) -> None:
        before = transport._backlog_bytes
        send(transport)
        in_one_turn.append(before - transport._backlog_bytes)

    monkeypatch.setattr(tls.TlsTransport, "_send", counted)

    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port) as reader:
            await asyncio.wait_for(door.app.entered.wait(), WAIT_S)
            received = asyncio.ensure_future(asyncio.to_thread(read_all, reader))
            door.app.transport.write(bytes(LONG))
            door.app.transport.close()
            assert len(await asyncio.wait_for(received, WAIT_S)) == LONG

    serve(files, act)
    assert sum(in_one_turn) == LONG
    assert max(in_one_turn) <= MIB // 2


def test_who_reads_on_is_written_to_again(files: Files) -> None:
    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port) as reader:
            await asyncio.wait_for(door.app.entered.wait(), WAIT_S)
            transport = door.app.transport
            transport.set_write_buffer_limits(MIB)
            transport.write(memoryview(mmap.mmap(-1, LONG)))
            assert door.app.was_paused

            def read() -> None:
                left = LONG
                while left:
                    left -= len(reader.recv(MIB))

            await asyncio.wait_for(asyncio.to_thread(read), WAIT_S)
            assert not door.app.is_paused
            assert transport.get_write_buffer_size() == 0

    serve(files, act)


def test_what_came_while_nobody_read_is_there_afterwards(files: Files) -> None:
    sent = bytes(range(256)) * 8000

    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port, b"first") as writer:
            assert await door.app.wait_received(5) == b"first"
            transport = door.app.transport
            transport.pause_reading()
            sending = asyncio.ensure_future(asyncio.to_thread(writer.sendall, sent))
            await asyncio.sleep(0.1)
            assert door.app.received == b"first"
            assert not transport.is_reading()
            transport.resume_reading()
            assert await door.app.wait_received(5 + len(sent)) == b"first" + sent
            await sending

    serve(files, act)


def test_the_first_request_may_come_with_the_end_of_the_handshake(files: Files) -> None:
    async def act(door: Door, port: int) -> None:
        context = ssl.create_default_context(cafile=files.authority)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        shaking = context.wrap_bio(incoming, outgoing, server_hostname=HOST)

        def talk() -> None:
            with socket.create_connection((HOST, port), timeout=WAIT_S) as connection:
                while True:
                    try:
                        shaking.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        connection.sendall(outgoing.read())
                        incoming.write(connection.recv(1 << 16))
                shaking.write(b"at once")
                connection.sendall(outgoing.read())
                connection.recv(1 << 16)

        talking = asyncio.ensure_future(asyncio.to_thread(talk))
        assert await door.app.wait_received(7) == b"at once"
        door.app.transport.abort()
        await asyncio.gather(talking, return_exceptions=True)

    serve(files, act)


def test_a_client_that_says_goodbye_is_let_go(files: Files) -> None:
    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port, b"only this") as guest:
            assert await door.app.wait_received(9) == b"only this"
            # It sends its goodbye and waits for the other one.
            await asyncio.wait_for(asyncio.to_thread(guest.unwrap), WAIT_S)
            await asyncio.wait_for(door.app.lost.wait(), WAIT_S)

    serve(files, act)


def test_a_forged_record_ends_the_connection(files: Files) -> None:
    async def act(door: Door, port: int) -> None:
        guest = await asyncio.to_thread(client, files, port, b"true")
        assert await door.app.wait_received(4) == b"true"
        with socket.socket(fileno=guest.detach()) as bare:
            bare.settimeout(WAIT_S)
            bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            assert await asyncio.wait_for(asyncio.to_thread(read_all, bare), WAIT_S)
        await asyncio.wait_for(door.app.lost.wait(), WAIT_S)
        assert door.app.received == b"true"

    serve(files, act)


def test_others_go_on_while_a_handshake_is_computed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with long keys, or with thousands of handshakes at once."""
    begun, may_go_on = threading.Event(), threading.Event()
    compute = tls._next_step

    def slow(shaking: ssl.SSLObject) -> bool:
        begun.set()
        assert may_go_on.wait(WAIT_S)
        return compute(shaking)

    monkeypatch.setattr(tls, "_next_step", slow)

    async def act(door: Door, port: int) -> None:
        connecting = asyncio.ensure_future(asyncio.to_thread(client, files, port))
        deadline = time.monotonic() + WAIT_S
        while not begun.is_set():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert not door.app.entered.is_set()
        may_go_on.set()
        (await connecting).close()
        await asyncio.wait_for(door.app.entered.wait(), WAIT_S)

    assert serve(files, act).failures == []


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_who_does_not_finish_its_handshake_is_told_of_once(files: Files, said: bytes) -> None:
    async def act(door: Door, port: int) -> None:
        with socket.create_connection((HOST, port), timeout=WAIT_S) as guest:
            guest.sendall(said)
            guest.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(read_all, guest)
        deadline = time.monotonic() + WAIT_S
        while not door.ended:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    door = serve(files, act)
    assert (len(door.failures), door.ended) == (1, 1)
    assert not door.app.entered.is_set()


def test_little_is_read_of_those_who_send_little(files: Files) -> None:
    async def act(door: Door, port: int) -> None:
        with await asyncio.to_thread(client, files, port, b"little") as guest:
            await door.app.wait_received(6)
            transport = cast(tls.TlsTransport, door.app.transport)
            assert len(transport.get_buffer(-1)) == FIRST_READ_BYTES_MAX
            await asyncio.to_thread(guest.sendall, bytes(20 * MIB))
            await door.app.wait_received(20 * MIB)
            assert FIRST_READ_BYTES_MAX < len(transport.get_buffer(-1)) <= READ_BYTES_MAX

    serve(files, act)
