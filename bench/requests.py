"""What one hot request costs a broker, without sockets and clients: `python -m bench.requests`.

A whole node runs in this process. Its connections get their bytes from memory and answer into nothing, as if
sockets cost nothing. What is left is what the code of the broker takes, and the kernel for its files, in CPU
time: the least of many short blocks, because other load on the machine can only add to it.

    --instructions      counted by Valgrind instead of timed: the same in every run, so that one percent shows
    --against SRC       beside another tree of sources (`git worktree add`), in turns, with the ratio
    --only fetch        requests by name or part of it

Instructions are those of user space; of the kernel's part (`writev`, page faults, whether a page is in
memory) only CPU time tells. Where both agree, believe the instructions.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import mmap
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from bench import encoding
from bench.report import print_aligned

ROUNDS = 5
BLOCKS = 40
INSTRUCTION_BLOCKS = 2
INSTRUCTION_SHARE = 4
"""Blocks are shorter by this where instructions are counted: Valgrind is slow, and every block the same."""
SLOWER_WHEN_COUNTED = 100
LARGE_BYTES = 1 << 20
LARGE_BATCHES = 32
RECORD_BYTES = 1000
SMALL_RECORD_BYTES = 100
PIPELINED = 8
TOPIC = "requests"
PARTITIONS = 4
WAIT_MS = 30_000
# Nobody else calls it: Valgrind writes down what was counted so far whenever somebody does.
MARK = "ctermid"
SESSION_ID_AT = 4 + 4 + 4 + 2
"""In an answer to a fetch: behind length, correlation id, throttle time and error code."""


MakeProtocol = Callable[[], asyncio.BaseProtocol]
Run = Callable[[int], Awaitable[None]]
"""Sends so many requests."""


class Transport:
    """Of a client that reads everything at once."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.keeps = True
        self.is_closed = False
        self.is_paused = False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:
        if self.keeps:
            self.sent.append(bytes(data))

    def writelines(self, buffers: Iterable[Any]) -> None:
        if self.keeps:
            self.sent.append(b"".join(buffers))
        else:
            for buffer in buffers:
                if type(buffer) is memoryview:
                    # A socket would read them all: what is mapped has to be there.
                    bytes(buffer[:: mmap.PAGESIZE])

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_closed and self.protocol is not None:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
        self.is_closed = True

    abort = close


class Client:
    """One connection to the node, at its end of the socket."""

    def __init__(self, make_protocol: MakeProtocol) -> None:
        self.transport = Transport()
        self.connection = cast(asyncio.BufferedProtocol, make_protocol())
        self.transport.protocol = self.connection
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    async def let_in(self) -> None:
        """Wait until the broker reads again. It stops where it was held up, and lets others go first."""
        while self.transport.is_paused:
            await asyncio.sleep(0)

    def send(self, frames: bytes | bytearray) -> None:
        """As an event loop does it."""
        if self.transport.is_closed or self.transport.is_paused:
            raise ConnectionError("the broker does not read from the connection")
        size, at = len(frames), 0
        while at < size:
            target: Any = self.connection.get_buffer(-1)
            part = frames[at : at + len(target)] if at or size > len(target) else frames
            target[: len(part)] = part
            self.connection.buffer_updated(len(part))
            at += len(part)

    def take(self) -> bytes:
        sent, self.transport.sent = self.transport.sent, []
        return b"".join(sent)

    async def ask(self, frame: bytes | bytearray) -> bytes:
        self.send(frame)
        while not self.transport.sent:
            await asyncio.sleep(0.001)
        return self.take()


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    requests: int
    """In one block."""
    prepare: Callable[[MakeProtocol], Awaitable[Run]]


def _batch(count: int, record_bytes: int) -> bytes:
    return encoding.record_batch([bytes(record_bytes)] * count, int(time.time() * 1000))


async def _produce(make_protocol: MakeProtocol, at_once: int, batch: bytes) -> Run:
    client = Client(make_protocol)
    frames = [encoding.produce_frame(TOPIC, partition, batch, acks=1) for partition in range(PARTITIONS)]
    answer_bytes, error_at = encoding.produce_answer_layout(TOPIC)
    answer = await client.ask(frames[0])
    if len(answer) != answer_bytes or any(answer[error_at : error_at + 2]):
        raise ConnectionError(f"a produce request was refused: {answer!r}")
    client.transport.keeps = False
    chunk = b"".join(frames[at % PARTITIONS] for at in range(at_once))
    sends = [chunk] if at_once > 1 else frames

    async def run(count: int) -> None:
        send, which, transport = client.send, len(sends), client.transport
        for at in range(count // at_once):
            send(sends[at % which])
            if transport.is_paused:
                await client.let_in()

    return run


async def _fetch_nothing(make_protocol: MakeProtocol) -> Run:
    """Through a session, as consumers ask who have read everything; answered at once."""
    client = Client(make_protocol)
    topic = "read-up"
    await client.ask(encoding.create_topic_frame(topic, PARTITIONS))
    answer = await client.ask(encoding.session_frame(topic, range(PARTITIONS)))
    (session_id,) = struct.unpack_from(">i", answer, SESSION_ID_AT)
    client.transport.keeps = False
    epoch = 0

    async def run(count: int) -> None:
        nonlocal epoch
        for _ in range(count):
            epoch += 1
            client.send(encoding.continued_session_frame(session_id, epoch))

    return run


async def _fetch_large(make_protocol: MakeProtocol) -> Run:
    """A megabyte per answer, of a topic that was read before."""
    client = Client(make_protocol)
    topic = "large"
    await client.ask(encoding.create_topic_frame(topic, 1))
    count = LARGE_BYTES // (RECORD_BYTES + 100)
    frame = encoding.produce_frame(topic, 0, _batch(count, RECORD_BYTES), acks=1)
    for _ in range(LARGE_BATCHES):
        await client.ask(frame)
    frames = [
        encoding.fetch_frame(topic, 0, at * count, wait_ms=0, partition_bytes_max=LARGE_BYTES)[0]
        for at in range(LARGE_BATCHES)
    ]
    if not all([len(await client.ask(each)) > LARGE_BYTES // 2 for each in frames]):
        raise ConnectionError("a fetch brought less than what it asked for")
    client.transport.keeps = False

    async def run(count: int) -> None:
        for at in range(count):
            client.send(frames[at % LARGE_BATCHES])

    return run


async def _fetch_grown(make_protocol: MakeProtocol) -> Run:
    """What was produced since, a quarter of a megabyte, as a consumer at the end of a busy topic does; with
    the produce request."""
    client = Client(make_protocol)
    topic = "grown"
    await client.ask(encoding.create_topic_frame(topic, 1))
    count = LARGE_BYTES // 4 // RECORD_BYTES
    produce = encoding.produce_frame(topic, 0, _batch(count, RECORD_BYTES), acks=1)
    fetch, offset_at = encoding.fetch_frame(topic, 0, 0, wait_ms=0, partition_bytes_max=LARGE_BYTES)
    await client.ask(produce)
    if len(await client.ask(fetch)) < LARGE_BYTES // 8:
        raise ConnectionError("a fetch brought less than what it asked for")
    client.transport.keeps = False
    offset = count

    async def run(blocks: int) -> None:
        nonlocal offset
        for _ in range(blocks):
            client.send(produce)
            struct.pack_into(">q", fetch, offset_at, offset)
            client.send(fetch)
            offset += count

    return run


async def _wake(make_protocol: MakeProtocol) -> Run:
    """A consumer waits, a producer writes one record, the consumer gets it: both requests, and the rounds of
    the event loop between them."""
    reader, writer = Client(make_protocol), Client(make_protocol)
    topic = "woken"
    await reader.ask(encoding.create_topic_frame(topic, 1))
    frame = encoding.produce_frame(topic, 0, _batch(1, SMALL_RECORD_BYTES), acks=1)
    fetch, offset_at = encoding.fetch_frame(topic, 0, 0, wait_ms=WAIT_MS, partition_bytes_max=LARGE_BYTES)
    writer.transport.keeps = False
    offset = 0

    async def run(count: int) -> None:
        nonlocal offset
        sent = reader.transport.sent
        for _ in range(count):
            struct.pack_into(">q", fetch, offset_at, offset)
            reader.send(fetch)
            writer.send(frame)
            while not sent:
                await asyncio.sleep(0)
            sent.clear()
            offset += 1

    return run


def _cases() -> list[Case]:
    small, large = _batch(1, SMALL_RECORD_BYTES), _batch(LARGE_BYTES // (RECORD_BYTES + 100), RECORD_BYTES)
    return [
        Case("produce one record", 400, lambda make: _produce(make, 1, small)),
        Case(f"the same, {PIPELINED} at once", 400, lambda make: _produce(make, PIPELINED, small)),
        Case("produce 1 MB", 8, lambda make: _produce(make, 1, large)),
        Case("fetch, nothing new", 400, _fetch_nothing),
        Case("fetch 1 MB", 100, _fetch_large),
        Case("produce and fetch 256 kB", 20, _fetch_grown),
        Case("produce wakes a fetch", 200, _wake),
    ]


async def _measure(cases: Sequence[Case], blocks: int, mark: Callable[[], object] | None) -> dict[str, float]:
    """Microseconds of CPU time per request. A mark is set before and after each block."""
    from ottla.config import BrokerConfig
    from ottla.node import Node
    from ottla.runtime import real_runtime

    runtime = real_runtime()
    factories: list[MakeProtocol] = []
    net = _Listening(runtime.net, factories)
    home = tempfile.mkdtemp(prefix="ottla-bench-")
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": home}
    node = Node(dataclasses.replace(runtime, net=cast(Any, net)), BrokerConfig.from_properties(properties))
    costs: dict[str, float] = {}
    try:
        await node.start()
        await Client(factories[0]).ask(encoding.create_topic_frame(TOPIC, PARTITIONS))
        if mark is not None:
            # Not from the start, which would take most of the time.
            subprocess.run(["callgrind_control", "-i", "on", str(os.getpid())], check=True)
        for case in cases:
            run = await case.prepare(factories[0])
            gc.collect()
            await run(case.requests // 4)
            times = []
            count = case.requests if mark is None else case.requests // INSTRUCTION_SHARE
            for _ in range(blocks):
                if mark is not None:
                    mark()
                begin = time.thread_time_ns()
                await run(count)
                times.append((time.thread_time_ns() - begin) / 1000 / count)
                if mark is not None:
                    mark()
            costs[case.name] = min(times)
        await node.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return costs


class _Listening:
    """The network, and who is to be asked for a connection's protocol."""

    def __init__(self, net: Any, factories: list[MakeProtocol]) -> None:
        self._net = net
        self._factories = factories

    async def listen(self, factory: MakeProtocol, host: str, port: int) -> Any:
        self._factories.append(factory)
        return await self._net.listen(factory, host, port)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)


def _slow_time_down() -> None:
    """Before anything of the broker is loaded: counting makes it slow, and it is not to notice."""
    monotonic = time.monotonic
    time.monotonic = lambda: monotonic() / SLOWER_WHEN_COUNTED


def _run_here(wanted: Sequence[Case], blocks: int, mark: Callable[[], object] | None) -> dict[str, float]:
    import uvloop

    # As the broker has it: cycles are looked for seldom.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(wanted, blocks, mark))


def _run_elsewhere(sources: str | None, only: Sequence[str], *, instructions: bool) -> dict[str, float]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    if sources is not None:
        environment["PYTHONPATH"] = sources
    command = [sys.executable, "-m", "bench.requests", "--child", *(f"--only={each}" for each in only)]
    if not instructions:
        found: dict[str, float] = json.loads(
            subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
        )
        return found
    with tempfile.TemporaryDirectory() as home:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={home}/out"]
        marking = ["--instr-atstart=no", f"--dump-before={MARK}", "--fair-sched=try"]
        subprocess.run(
            [*valgrind, *marking, *command, "--instructions"],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return _counted(Path(home), _wanted(only))


def _counted(home: Path, cases: Sequence[Case]) -> dict[str, float]:
    """Every other dump has what lies between two blocks."""
    dumps = sorted(home.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    counts = [_total(path) for path in dumps][1 : 2 * INSTRUCTION_BLOCKS * len(cases) : 2]
    costs = {}
    for at, case in enumerate(cases):
        mine = counts[at * INSTRUCTION_BLOCKS : (at + 1) * INSTRUCTION_BLOCKS]
        costs[case.name] = statistics.mean(mine) / (case.requests // INSTRUCTION_SHARE)
    return costs


def _total(dump: Path) -> int:
    for line in dump.read_text().splitlines():
        if line.startswith(("summary:", "totals:")):
            return int(line.split()[1])
    raise ValueError(f"{dump} has no total")


def _wanted(only: Sequence[str]) -> list[Case]:
    return [case for case in _cases() if not only or any(part in case.name for part in only)]


def main() -> int:
    options = _parse()
    if options.child:
        blocks, mark = (INSTRUCTION_BLOCKS, os.ctermid) if options.instructions else (BLOCKS, None)
        if options.instructions:
            _slow_time_down()
        print(json.dumps(_run_here(_wanted(options.only), blocks, mark)))
        return 0
    if options.instructions and shutil.which("valgrind") is None:
        print("--instructions needs valgrind: apt-get install valgrind", file=sys.stderr)
        return 1
    trees = [None, options.against] if options.against else [None]
    samples: list[list[dict[str, float]]] = [[] for _ in trees]
    for round_number in range(1 if options.instructions else options.rounds):
        order = list(enumerate(trees))
        for which, sources in order if round_number % 2 else reversed(order):
            samples[which].append(_run_elsewhere(sources, options.only, instructions=options.instructions))
    unit, digits = ("instructions", 0) if options.instructions else ("µs", 2)
    rows = [["per request", unit, *([f"{unit} of the other", "ratio"] if options.against else [])]]
    for case in _wanted(options.only):
        costs = [min(sample[case.name] for sample in mine) for mine in samples]
        row = [case.name, *(f"{cost:,.{digits}f}" for cost in costs)]
        if options.against:
            ratios = [mine[case.name] / other[case.name] for mine, other in zip(*samples, strict=True)]
            ratio = costs[0] / costs[1]
            row.append(
                f"{ratio:.3f} (median {statistics.median(ratios):.3f})" if len(ratios) > 1 else f"{ratio:.3f}"
            )
        rows.append(row)
    print_aligned(rows, words=1)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.requests", description=__doc__)
    parser.add_argument("--instructions", action="store_true", help="count them with Valgrind")
    parser.add_argument("--against", metavar="SRC", help="another tree's src folder")
    parser.add_argument("--only", action="append", default=[], help="requests by name or part of it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes per tree, for times")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
