"""Virtual time, seeded order, and the asyncio primitives that must work unchanged on SimLoop."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextvars import copy_context

import pytest

from ottla.sim.loop import (
    PROCESS,
    Deadlock,
    Livelock,
    Process,
    SimLoop,
    TimeLimitReached,
    UnhandledFailure,
    run,
)


def test_a_day_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    started = time.monotonic()
    assert run(main(), free_turns=True) == 86_400
    assert time.monotonic() - started < 5


def test_timers_fire_in_order_and_cancelled_ones_do_not_move_time() -> None:
    async def main() -> tuple[list[str], float]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        loop.call_later(3, fired.append, "c")
        loop.call_later(1, fired.append, "a")
        loop.call_later(1, fired.append, "b")
        loop.call_later(2, fired.append, "never").cancel()
        await asyncio.sleep(3)
        await asyncio.sleep(0)
        loop.call_later(1000, fired.append, "never").cancel()
        await asyncio.sleep(1)
        return fired, loop.time()

    assert run(main(), free_turns=True) == (["a", "b", "c"], 4)


def test_time_never_goes_back() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5)
        fired = asyncio.Event()
        loop.call_at(1, fired.set)
        await fired.wait()
        assert loop.time() == 5

    run(main(), free_turns=True)


def test_turns_take_time_and_some_take_long() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        ends = []
        for _ in range(5000):
            await asyncio.sleep(0)
            ends.append(loop.time())
        return ends

    ends = run(main(), seed=1)
    assert ends == run(main(), seed=1)
    assert ends != run(main(), seed=2)
    turns = sorted(after - before for before, after in itertools.pairwise(ends))
    assert 0 < turns[0] < turns[2500] < 0.0001
    assert 0.001 < turns[-1] < 0.1
    assert set(run(main(), free_turns=True)) == {0.0}


def test_what_is_due_comes_between_two_turns() -> None:
    """Where turns are free, a timer never comes between the steps of a task that only yields."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        fired = asyncio.Event()
        loop.call_later(0.001, fired.set)
        for step in range(1000):
            await asyncio.sleep(0)
            if fired.is_set():
                return step
        return -1

    assert 0 < run(main()) < 1000
    assert run(main(), free_turns=True) == -1


def test_task_names_do_not_depend_on_what_ran_before() -> None:
    async def main() -> str:
        return asyncio.create_task(asyncio.sleep(0)).get_name()

    assert run(main()) == run(main())


def test_plain_callbacks_keep_their_order_under_every_seed() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        called: list[int] = []
        for number in range(20):
            loop.call_soon(called.append, number)
        others = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        await asyncio.gather(*others)
        return called

    for seed in range(10):
        assert run(main(), seed=seed) == list(range(20))


async def _order_of_steps() -> tuple[int, ...]:
    order: list[int] = []

    async def step(number: int) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(step(number) for number in range(6)))
    return tuple(order)


def test_the_seed_decides_the_order_of_tasks() -> None:
    orders = [run(_order_of_steps(), seed=seed) for seed in range(10)]
    assert orders == [run(_order_of_steps(), seed=seed) for seed in range(10)]
    assert len(set(orders)) > 5


def test_without_shuffling_tasks_run_first_in_first_out() -> None:
    assert run(_order_of_steps(), seed=3, shuffle=False) == (*range(6), *range(6))


def test_a_round_lets_every_ready_task_run_once() -> None:
    assert all(sorted(run(_order_of_steps(), seed=seed)[:6]) == list(range(6)) for seed in range(10))


def test_sets_of_tasks_iterate_in_the_same_order() -> None:
    async def main() -> list[str]:
        cancelled: list[str] = []

        async def wait_forever(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(name)

        async def fail() -> None:
            raise ValueError("stops the group")

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(wait_forever(str(number)))
                await asyncio.sleep(1)
                group.create_task(fail())
        return cancelled

    # Allocations between the runs move the addresses that hashes would come from.
    padding: list[object] = []
    orders = []
    for _ in range(5):
        orders.append(run(main(), seed=1, shuffle=False))
        padding.extend(object() for _ in range(1000))
    assert all(order == orders[0] for order in orders)


def test_primitives_of_asyncio_work() -> None:
    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        event = asyncio.Event()
        results: list[object] = []

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)
                await asyncio.sleep(0.1)
            event.set()

        producer = asyncio.create_task(produce())
        results.extend([await queue.get() for _ in range(5)])
        await event.wait()
        await producer
        for timed_out in (asyncio.wait_for(asyncio.Event().wait(), 2), queue.get()):
            try:
                async with asyncio.timeout(5):
                    await timed_out
            except TimeoutError:
                results.append(round(asyncio.get_running_loop().time(), 3))
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(delay)) for delay in (1, 2)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        results += [len(done), len(pending)]
        lock = asyncio.Lock()
        async with lock, asyncio.Semaphore(1):
            results.append(lock.locked())
        return results

    for seed in range(20):
        assert run(main(), seed=seed) == [0, 1, 2, 3, 4, 2.5, 7.5, 1, 1, True]


def test_async_generators_are_closed() -> None:
    async def main() -> list[str]:
        closed: list[str] = []

        async def numbers():  # type: ignore[no-untyped-def]
            try:
                for number in range(10):
                    yield number
            finally:
                await asyncio.sleep(1)
                closed.append("closed")

        async for _ in numbers():
            break
        await asyncio.sleep(2)
        return closed

    assert run(main()) == ["closed"]


def test_deadlock_names_the_tasks_that_wait() -> None:
    async def main() -> None:
        async def inner() -> None:
            await asyncio.Event().wait()

        await asyncio.create_task(inner(), name="stuck")

    loop = SimLoop()
    with pytest.raises(Deadlock, match=r"stuck: .*inner:\d+ > Event\.wait"):
        loop.run_until_complete(main())
    loop.close()


def test_livelock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.sim.loop.ROUNDS_WITHOUT_REST_MAX", 100)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def spin_on_timers() -> None:
        while True:
            event = asyncio.Event()
            asyncio.get_running_loop().call_later(0, event.set)
            await event.wait()

    for spinning in (spin(), spin_on_timers()):
        with pytest.raises(Livelock, match="spin"):
            run(spinning)


def test_time_has_a_limit() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    loop = SimLoop(time_limit_s=10)
    with pytest.raises(TimeLimitReached):
        loop.run_until_complete(main())
    loop.close()


def test_a_failing_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(1)

    with pytest.raises(UnhandledFailure) as caught:
        run(main())
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_abandoned_failing_task_fails_the_run() -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        asyncio.create_task(fail())  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(UnhandledFailure, match="nobody looks"):
        run(main())


def test_run_cancels_what_main_leaves_behind() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append("background")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()

    run(main())
    assert ended == ["background"]


def test_nothing_of_a_dead_process_runs_again() -> None:
    ran: list[str] = []

    async def member() -> None:
        try:
            asyncio.get_running_loop().call_later(4, ran.append, "timer")
            while True:
                ran.append("step")
                await asyncio.sleep(2)
        finally:
            ran.append("finally")

    async def main() -> list[str]:
        process = Process("b1")
        context = copy_context()
        context.run(PROCESS.set, process)
        task = asyncio.get_running_loop().create_task(member(), context=context)
        await asyncio.sleep(3)
        process.alive = False
        await asyncio.sleep(100)
        assert not task.done()
        return list(ran)

    loop = SimLoop()
    assert loop.run_until_complete(main()) == ["step", "step"]
    loop.close()
    assert ran[-1] == "finally"


def test_threads_and_sockets_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match=r"runtime\.offload"):
            await asyncio.to_thread(time.monotonic)
        with pytest.raises(RuntimeError, match=r"runtime\.net"):
            await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        with pytest.raises(RuntimeError, match=r"runtime\.net"):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", 1)

    run(main())
