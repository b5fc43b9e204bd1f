"""SimWorld, proven on a toy: a log server, right when it syncs before it answers and wrong otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.runtime import Runtime
from ottla.runtime.disk import DiskLocked, File
from ottla.sim.checkers import Acked, History, InvariantViolation, Read, ReadingStarts, Sent
from ottla.sim.faults import RandomCrashes, RandomCuts, RandomPartitions, SlowDisk, inject
from ottla.sim.loop import ProcessDied
from ottla.sim.world import START_MS, SimWorld, simulate

HEADER = struct.Struct(">HI")
PORT = 9000
LOG = ("log", 0)


class ToyLog:
    """Appends lines to a file and answers each with its offset; answers `*` with all lines."""

    def __init__(self, runtime: Runtime, *, sync: bool) -> None:
        self.runtime = runtime
        self.sync = sync
        self.values: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.file: File

    async def run(self) -> None:
        disk = self.runtime.disk
        disk.make_dirs("/data")
        disk.sync_dir("/")
        disk.lock("/data/.lock")
        self.file = disk.open("/data/log", create=True)
        disk.sync_dir("/data")
        self.recover()
        listener = await self.runtime.net.listen(lambda: ToyConnection(self), "", PORT)
        try:
            await asyncio.Event().wait()
        finally:
            await listener.close()

    def recover(self) -> None:
        content = self.file.read(0, self.file.size)
        at = 0
        while at + HEADER.size <= len(content):
            size, crc = HEADER.unpack_from(content, at)
            value = content[at + HEADER.size : at + HEADER.size + size]
            if size == 0 or len(value) < size or zlib.crc32(value) != crc:
                break
            self.values.append(value)
            at += HEADER.size + size
        self.file.truncate(at)
        self.file.sync()

    async def append(self, value: bytes) -> int:
        self.file.append([HEADER.pack(len(value), zlib.crc32(value)), value])
        self.values.append(value)
        offset = len(self.values) - 1
        if self.sync:
            await self.runtime.offload.run(self.file.sync)
        return offset


class ToyConnection(asyncio.Protocol):
    def __init__(self, log: ToyLog) -> None:
        self.log = log
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            task = asyncio.get_running_loop().create_task(self.answer(line))
            self.log.tasks.add(task)
            task.add_done_callback(self.log.tasks.discard)

    async def answer(self, line: bytes) -> None:
        answer = b",".join(self.log.values) if line == b"*" else b"%d" % await self.log.append(line)
        self.transport.write(answer + b"\n")


class ToyClient(asyncio.Protocol):
    """One question at a time."""

    def __init__(self) -> None:
        self.buffer = b""
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.buffer.endswith(b"\n") and not self.answer.done():
            self.answer.set_result(self.buffer[:-1])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError("closed"))

    @staticmethod
    async def ask(runtime: Runtime, question: bytes) -> bytes:
        transport, client = await runtime.net.connect(ToyClient, "b1", PORT)
        assert isinstance(client, ToyClient)
        try:
            transport.write(question + b"\n")
            return await asyncio.wait_for(client.answer, 10)
        finally:
            transport.close()


def toy_scenario(*, sync: bool, power_loss: bool | None) -> Callable[[SimWorld], Coroutine[Any, Any, str]]:
    """Two clients append while everything goes wrong; then the log is read and checked."""

    async def scenario(world: SimWorld) -> str:
        history = History()
        world.start("b1", lambda runtime: ToyLog(runtime, sync=sync).run())

        async def append_all(host: str) -> None:
            runtime = world.runtime(host)
            for number in range(25):
                value = b"%s-%d" % (host.encode(), number)
                history.observe(Sent(LOG, value))
                with contextlib.suppress(OSError):
                    offset = int(await ToyClient.ask(runtime, value))
                    history.observe(Acked(LOG, offset, value))
                await asyncio.sleep(runtime.random.random())

        faults = (
            RandomCrashes("b1", every_s=2, down_s=0.5, power_loss=power_loss),
            RandomPartitions(("b1",), ("c1", "c2"), every_s=5, for_s=1),
            RandomCuts("b1", every_s=3),
            SlowDisk("b1", (0.0, 0.2)),
        )
        async with inject(world, *faults):
            await asyncio.gather(append_all("c1"), append_all("c2"))
        await asyncio.sleep(1)
        history.observe(ReadingStarts(LOG, 0))
        values = (await ToyClient.ask(world.runtime("c1"), b"*")).split(b",")
        for offset, value in enumerate(values):
            history.observe(Read(LOG, offset, value))
        history.check()
        return f"{world.trace.digest()}, {len(values)} values"

    return scenario


def digest_of(seed: int) -> str:
    return simulate(toy_scenario(sync=True, power_loss=None), seed=seed)


@pytest.mark.parametrize("seed", range(15))
def test_a_log_that_syncs_before_it_answers_loses_nothing(seed: int) -> None:
    simulate(toy_scenario(sync=True, power_loss=None), seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_without_syncing_a_killed_process_loses_nothing_either(seed: int) -> None:
    simulate(toy_scenario(sync=False, power_loss=False), seed=seed)


def test_answering_before_syncing_is_found_out() -> None:
    for seed in itertools.count():
        try:
            simulate(toy_scenario(sync=False, power_loss=True), seed=seed)
        except InvariantViolation as violation:
            assert any(f"seed={seed}" in note for note in violation.__notes__)
            assert any("power is cut" in note for note in violation.__notes__)
            break
        assert seed < 10, "ten seeds and no acknowledged record was lost"


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    program = "import test_sim_world; print(test_sim_world.digest_of(5))"
    digests = {digest_of(5)}
    for hash_seed in ("0", "1"):
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        output = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(output.stdout.strip())
    assert len(digests) == 1
    assert digest_of(6) not in digests


def test_clocks_follow_virtual_time_and_may_be_skewed() -> None:
    async def scenario(world: SimWorld) -> None:
        world.host("b2").clock.skew_ms = -5000
        await asyncio.sleep(0.7)
        await asyncio.sleep(0.1)
        assert world.runtime("b1").clock.now_ms() == START_MS + 800
        assert world.runtime("b2").clock.now_ms() == START_MS - 4200
        assert world.runtime("b1").clock.monotonic() == world.loop.time()

    simulate(scenario)


def test_randomness_differs_by_host_process_and_seed() -> None:
    drawn = []
    for seed in (1, 2, 1):
        with SimWorld(seed) as world:
            drawn.append((seed, "b1", world.runtime("b1").random.random()))
            drawn.append((seed, "b2", world.runtime("b2").random.random()))
            world.crash("b1", power_loss=True)
            world.restart("b1")
            drawn.append((seed, "b1 again", world.runtime("b1").random.random()))
    assert drawn[6:] == drawn[:3]
    assert len({value for _, _, value in drawn}) == 6


def test_a_crash_ends_the_process_without_a_word() -> None:
    log: list[str] = []

    async def process(runtime: Runtime) -> None:
        lock = runtime.disk.lock("/lock")
        try:
            while True:
                log.append("alive")
                await asyncio.sleep(1)
        finally:
            log.append("finally")
            lock.release()

    async def scenario(world: SimWorld) -> None:
        outcome = world.start("b1", process)
        await asyncio.sleep(1.5)
        with pytest.raises(DiskLocked):
            world.host("b1").disk.lock("/lock")
        world.crash("b1", power_loss=False)
        await asyncio.sleep(10)
        assert outcome.cancelled()
        with pytest.raises(RuntimeError, match="b1 is down"):
            world.spawn("b1", asyncio.sleep(1))
        with pytest.raises(ProcessDied):
            world.host("b1").disk.exists("/lock")
        assert log == ["alive", "alive"]
        world.restart("b1")
        await asyncio.sleep(0.5)
        assert log == ["alive"] * 3
        with pytest.raises(RuntimeError, match="b1 is running"):
            world.restart("b1")

    simulate(scenario)


def test_the_dead_are_not_collected_before_the_end() -> None:
    log: list[str] = []

    async def process(runtime: Runtime) -> None:
        async def background() -> None:
            task = asyncio.current_task()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                log.append(f"ended {task is not None}")

        asyncio.create_task(background())  # noqa: RUF006
        await asyncio.sleep(1)
        await asyncio.get_running_loop().create_future()

    async def scenario(world: SimWorld) -> None:
        world.start("b1", process)
        await asyncio.sleep(0.5)
        world.crash("b1", power_loss=True)
        gc.collect()
        assert log == []

    simulate(scenario)
    assert log == ["ended True"]


def test_power_can_be_cut_in_the_middle_of_a_step() -> None:
    reached: list[int] = []

    async def process(runtime: Runtime) -> None:
        await asyncio.sleep(1)
        try:
            for number in range(10):
                runtime.disk.open(f"/f{number}", create=True).sync()
                reached.append(number)
        except Exception:
            reached.append(-1)
        finally:
            runtime.disk.replace_file("/clean", b"must not be written by the dead")

    async def scenario(world: SimWorld) -> None:
        world.start("b1", process)
        world.crash_mid_operation("b1", 7)
        await world.host("b1").died.wait()
        assert reached == [0, 1, 2]
        world.restart("b1")
        assert not world.runtime("b1").disk.exists("/clean")

    simulate(scenario)


def test_a_process_that_fails_unseen_fails_the_run() -> None:
    async def process(runtime: Runtime) -> None:
        raise ValueError("cannot start")

    async def careless(world: SimWorld) -> asyncio.Future[Any]:
        outcome = world.start("b1", process)
        await asyncio.sleep(1)
        return outcome

    async def careful(world: SimWorld) -> None:
        with pytest.raises(ValueError, match="cannot start"):
            await world.start("b1", process)

    with pytest.raises(ValueError, match="cannot start"):
        simulate(careless)
    simulate(careful)


def test_offloaded_work_happens_between_asking_and_answer() -> None:
    async def scenario(world: SimWorld) -> None:
        offload = world.runtime("b1").offload
        world.host("b1").offload.delay_range_s = (1.0, 1.0)
        done_at: list[float] = []
        assert await offload.run(lambda: done_at.append(world.loop.time()) or "result") == "result"  # type: ignore[func-returns-value]
        assert done_at == [1.0]
        assert world.loop.time() == 2.0
        with pytest.raises(ZeroDivisionError):
            await offload.run(divmod, 1, 0)
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(offload.run(done_at.append, 0.0), 0.5)
        await asyncio.sleep(10)
        assert 1 < len(done_at) < 21

    simulate(scenario, free_turns=True)


def test_disks_take_time_on_the_loop_and_in_threads() -> None:
    async def scenario(world: SimWorld) -> tuple[float, float]:
        runtime = world.runtime("b1")
        world.host("b1").offload.delay_range_s = (1.0, 1.0)
        file = runtime.disk.open("/file", create=True)

        def sync_often() -> None:
            for _ in range(200):
                file.sync()

        started = world.loop.time()
        sync_often()
        on_the_loop = world.loop.time() - started
        started = world.loop.time()
        await runtime.offload.run(sync_often)
        return on_the_loop, world.loop.time() - started

    on_the_loop, in_a_thread = simulate(scenario)
    assert 0.1 < on_the_loop < 10
    assert 2.1 < in_a_thread < 12
    assert simulate(scenario, free_turns=True) == (0, 2.0)


def test_a_paused_process_does_nothing_and_goes_on_where_it_was() -> None:
    async def scenario(world: SimWorld) -> None:
        ticks: list[float] = []
        order: list[int] = []

        async def tick(runtime: Runtime) -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(runtime.clock.monotonic())

        async def queue_up() -> None:
            for number in range(3):
                world.loop.call_later(1 + number, order.append, number)

        world.start("a", tick)
        await world.spawn("a", queue_up())
        world.pause("a")
        await asyncio.sleep(10)
        assert ticks == [] and order == []
        world.resume("a")
        await asyncio.sleep(0.5)
        assert len(ticks) == 1 and ticks[0] >= 10
        assert order == [0, 1, 2]
        await asyncio.sleep(3)
        assert len(ticks) >= 3

    simulate(scenario)


def test_a_paused_process_that_is_killed_stays_dead() -> None:
    async def scenario(world: SimWorld) -> None:
        ticks: list[int] = []

        async def tick(runtime: Runtime) -> None:
            await asyncio.sleep(1)
            ticks.append(1)

        world.start("a", tick)
        world.pause("a")
        await asyncio.sleep(5)
        world.crash("a", power_loss=False)
        world.resume("a")
        await asyncio.sleep(5)
        assert ticks == []

    simulate(scenario)


def test_what_goes_to_and_from_a_slow_host_takes_longer() -> None:
    async def scenario(world: SimWorld) -> None:
        network = world.network
        assert network.delay_s("a", "b") < 0.1
        network.slow_hosts["a"] = (1.0, 2.0)
        assert network.delay_s("a", "b") > 1 and network.delay_s("b", "a") > 1
        assert network.delay_s("b", "c") < 0.1 and network.delay_s("a", "a") < 0.1

    simulate(scenario)
