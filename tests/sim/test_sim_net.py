"""SimNetwork: asyncio's transport contract, the order of bytes, and faults between hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.sim.loop import SimLoop, UnhandledFailure
from ottla.sim.net import SimNetwork
from ottla.sim.transport import SimTransport


class Recorder(asyncio.Protocol):
    """Keeps what happens to it, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.pieces: list[bytes] = []
        self.transport: SimTransport
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert self.events[-1] not in ("eof", "lost")
        self.pieces.append(data)
        if self.events[-1] != "data":
            self.events.append("data")

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class BufferedRecorder(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.data = b""
        self.asked = False

    def get_buffer(self, sizehint: int) -> bytearray:
        assert not self.asked
        self.asked = True
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.asked
        self.asked = False
        self.data += self.buffer[:nbytes]


def _run(main: Coroutine[Any, Any, None], network: SimNetwork) -> None:
    try:
        network.loop.run_until_complete(main)
    finally:
        network.loop.close()


def _network(seed: int = 0) -> SimNetwork:
    return SimNetwork(SimLoop(seed), seed)


async def _pair(network: SimNetwork) -> tuple[Recorder, Recorder]:
    """(client on "c", server on "s")."""
    servers: list[Recorder] = []

    def accept() -> Recorder:
        servers.append(Recorder())
        return servers[-1]

    listener = await network.host("s").listen(accept, "0.0.0.0", 0)
    _, client = await network.host("c").connect(Recorder, *listener.address)
    while not servers:
        await asyncio.sleep(0)
    await listener.close()
    assert isinstance(client, Recorder)
    return client, servers[0]


@given(chunks=st.lists(st.binary(max_size=300), max_size=20), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_bytes_arrive_complete_and_in_order(chunks: list[bytes], seed: int) -> None:
    network = _network(seed)

    async def main() -> None:
        client, server = await _pair(network)
        for number, chunk in enumerate(chunks):
            client.transport.writelines([chunk, memoryview(chunk), bytearray(chunk)])
            server.transport.write(chunk)
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        while len(client.data) < len(b"".join(chunks)):
            await asyncio.sleep(0.001)
        client.transport.close()
        assert await server.lost is None
        assert await client.lost is None
        assert server.data == b"".join(chunk * 3 for chunk in chunks)
        assert client.data == b"".join(chunks)
        assert server.events in (["made", "eof", "lost"], ["made", "data", "eof", "lost"])

    _run(main(), network)


def test_the_stream_is_cut_into_other_pieces_than_were_written() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        for _ in range(50):
            client.transport.write(bytes(10))
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert len(server.data) == 500
        sizes = {len(piece) for piece in server.pieces}
        assert min(sizes) < 10 < max(sizes)

    _run(main(), network)


def test_buffered_protocols_get_their_calls_in_pairs() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        buffered = BufferedRecorder()
        server.transport.set_protocol(buffered)
        client.transport.write(bytes(range(100)))
        await asyncio.sleep(1)
        assert buffered.data == bytes(range(100))

    _run(main(), network)


def test_addresses() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        assert client.transport.get_extra_info("peername") == server.transport.get_extra_info("sockname")
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("sockname")[0] == "c"
        assert client.transport.get_extra_info("socket") is None
        host = network.host("s")
        assert host.host_name() == "s"
        first, second = [await host.listen(Recorder, "s", 0) for _ in range(2)]
        assert first.address != second.address
        with pytest.raises(OSError, match="already in use"):
            await host.listen(Recorder, "s", first.address[1])
        with pytest.raises(OSError, match="cannot listen"):
            await host.listen(Recorder, "elsewhere", 1)
        await host.connect(Recorder, "localhost", first.address[1])
        await first.close()
        with pytest.raises(ConnectionRefusedError):
            await network.host("c").connect(Recorder, *first.address)

    _run(main(), network)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.set_write_buffer_limits(high=1000, low=100)
        assert client.transport.get_write_buffer_limits() == (100, 1000)
        client.transport.write(bytes(64 * 1024 + 500))
        await asyncio.sleep(1)
        assert client.transport.get_write_buffer_size() == 500
        client.transport.write(bytes(1000))
        assert client.events == ["made", "pause"]
        await asyncio.sleep(1)
        assert server.pieces == []
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0
        assert len(server.data) == 64 * 1024 + 1500

    _run(main(), network)


def test_pausing_inside_data_received_holds_the_rest_back() -> None:
    network = _network(2)

    async def main() -> None:
        client, server = await _pair(network)

        class PausesAtOnce(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.transport.pause_reading()

        pausing = PausesAtOnce()
        pausing.connection_made(server.transport)
        server.transport.set_protocol(pausing)
        client.transport.write(bytes(1000))
        await asyncio.sleep(1)
        assert len(pausing.pieces) == 1
        while len(pausing.data) < 1000:
            before = len(pausing.pieces)
            server.transport.resume_reading()
            await asyncio.sleep(1)
            assert len(pausing.pieces) == before + 1

    _run(main(), network)


def test_close_sends_what_was_written_first_and_abort_does_not() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        client.transport.write(b"last words")
        client.transport.close()
        client.transport.write(b"too late")
        assert client.transport.is_closing()
        await server.lost
        assert server.data == b"last words"
        client, server = await _pair(network)
        client.transport.write(b"never sent")
        client.transport.abort()
        assert await client.lost is None
        assert isinstance(await server.lost, ConnectionResetError)
        assert server.data == b""

    _run(main(), network)


def test_half_closing() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        server.eof_received = lambda: True  # type: ignore[method-assign]
        client.transport.write(b"question")
        client.transport.write_eof()
        with pytest.raises(RuntimeError):
            client.transport.write(b"more")
        await asyncio.sleep(1)
        server.transport.write(b"answer")
        server.transport.close()
        await client.lost
        assert (server.data, client.data) == (b"question", b"answer")

    _run(main(), network)


def test_writing_to_a_connection_the_peer_has_closed_resets_it() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        server.eof_received = lambda: True  # type: ignore[method-assign]
        client.transport.close()
        await client.lost
        await asyncio.sleep(1)
        server.transport.write(b"anybody?")
        assert isinstance(await server.lost, ConnectionResetError)

    _run(main(), network)


def test_what_arrives_while_closing_is_thrown_away() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        server.transport.pause_reading()
        client.transport.write(bytes(100_000))
        client.transport.close()
        server.transport.write(bytes(200_000))
        await asyncio.sleep(1)
        assert not client.lost.done()
        assert server.transport.get_write_buffer_size() == 0
        assert server.events == ["made", "pause", "resume"]
        server.transport.resume_reading()
        assert await client.lost is None
        await server.lost
        assert (len(server.data), client.data) == (100_000, b"")

    _run(main(), network)


def test_closing_a_listener_resets_connections_it_has_not_accepted() -> None:
    network = _network()

    async def main() -> None:
        listener = network.listen(Recorder, "s", 9092)
        _, client = await network.host("c").connect(Recorder, "s", 9092)
        network.stop_listening(listener)
        assert isinstance(client, Recorder)
        assert isinstance(await client.lost, ConnectionResetError)

    _run(main(), network)


def test_a_buffer_changed_right_after_writing_arrives_changed() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        buffer = bytearray(b"good")
        client.transport.write(buffer)
        buffer[:] = b"evil"
        await asyncio.sleep(1)
        assert server.data == b"evil"
        client.transport.write(buffer)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        buffer[:] = b"late"
        await asyncio.sleep(1)
        assert server.data == b"evilevil"

    _run(main(), network)


def test_a_failing_protocol_loses_its_connection_and_fails_the_run() -> None:
    network = _network()
    lost: list[Exception | None] = []

    async def main() -> None:
        client, server = await _pair(network)

        class Broken(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                raise ValueError("broken protocol")

            def connection_lost(self, exc: Exception | None) -> None:
                lost.append(exc)

        server.transport.set_protocol(Broken())
        client.transport.write(b"x")
        await client.lost

    with pytest.raises(UnhandledFailure, match="broken protocol"):
        _run(main(), network)
    network = _network()
    network.loop.set_exception_handler(lambda loop, context: None)
    _run(main(), network)
    assert lost == [None]


def test_a_partition_stalls_until_it_heals() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        client.transport.write(b"before ")
        await asyncio.sleep(1)
        network.partition(["c"], ["s", "x"])
        client.transport.write(b"during ")
        server.transport.write(b"back")
        await asyncio.sleep(3600)
        assert (server.data, client.data) == (b"before ", b"")
        network.heal()
        client.transport.write(b"after")
        await asyncio.sleep(1)
        assert (server.data, client.data) == (b"before during after", b"back")

    _run(main(), network)


def test_a_one_way_partition() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        network.partition(["c"], ["s"], one_way=True)
        client.transport.write(b"lost")
        server.transport.write(b"heard")
        await asyncio.sleep(1)
        assert (server.data, client.data) == (b"", b"heard")

    _run(main(), network)


def test_connecting_through_a_partition_waits_and_gives_up() -> None:
    network = _network()

    async def main() -> None:
        listener = await network.host("s").listen(Recorder, "", 9092)
        network.partition(["c"], ["s"])
        connecting = asyncio.create_task(network.host("c").connect(Recorder, "s", 9092))
        await asyncio.sleep(60)
        assert not connecting.done()
        network.heal()
        transport, _ = await connecting
        transport.close()
        network.partition(["c"], ["s"])
        started = network.loop.time()
        with pytest.raises(TimeoutError, match="c cannot reach s:9092"):
            await network.host("c").connect(Recorder, *listener.address)
        assert network.loop.time() - started == pytest.approx(127)

    _run(main(), network)


def test_a_cut_resets_both_ends_and_nothing_arrives_behind_a_gap() -> None:
    for seed in range(20):
        network = _network(seed)

        async def main(network: SimNetwork = network) -> None:
            client, server = await _pair(network)
            other, _ = await _pair(network)
            client.transport.write(b"first ")
            await asyncio.sleep(0.001)
            assert network.cut("s", "x") == 0
            assert network.cut("s", "c") == 2
            client.transport.write(b"second")
            for end in (client, server, other):
                assert isinstance(await end.lost, ConnectionResetError)
            assert b"first ".startswith(server.data)

        _run(main(), network)


def test_peers_hear_of_a_killed_process_at_once() -> None:
    network = _network()

    async def main() -> None:
        client, server = await _pair(network)
        await network.host("s").listen(Recorder, "", 9092)
        network.kill("s", power_loss=False)
        await client.lost
        assert "lost" not in server.events
        with pytest.raises(ConnectionRefusedError):
            await network.host("c").connect(Recorder, "s", 9092)

    _run(main(), network)


def test_peers_hear_of_a_power_cut_only_when_the_host_is_back() -> None:
    network = _network()

    async def main() -> None:
        client, _server = await _pair(network)
        idle, _ = await _pair(network)
        network.kill("s", power_loss=True)
        client.transport.write(b"hello?")
        await asyncio.sleep(3600)
        assert not client.lost.done()
        network.power_on("s")
        assert isinstance(await client.lost, ConnectionResetError)
        await asyncio.sleep(3600)
        assert not idle.lost.done()
        idle.transport.write(b"?")
        assert isinstance(await idle.lost, ConnectionResetError)

    _run(main(), network)
