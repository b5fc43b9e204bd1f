"""TaskScope, ByteBudget and ThreadOffload."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.runtime.tasks import ByteBudget, TaskScope, ThreadOffload


def _ignore(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error


def test_closing_a_scope_cancels_in_order_and_waits_for_the_end() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    async def main() -> None:
        scope = TaskScope("test", _ignore)
        tasks = [scope.spawn(work(number), f"work-{number}") for number in range(20)]
        await asyncio.sleep(0)
        await scope.close()
        assert ended == list(range(20))
        assert all(task.cancelled() for task in tasks)
        assert tasks[3].get_name() == "test/work-3"

    asyncio.run(main())


def test_tasks_started_while_closing_do_not_outlive_the_scope() -> None:
    async def main() -> None:
        scope = TaskScope("test", _ignore)
        late: list[asyncio.Task[object]] = []

        async def spawns_on_its_way_out() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                late.append(scope.spawn(asyncio.Event().wait(), "late"))

        scope.spawn(spawns_on_its_way_out(), "first")
        await asyncio.sleep(0)
        await scope.close()
        assert [task.done() for task in late] == [True]

    asyncio.run(main())


def test_a_failed_task_is_reported_and_others_are_not() -> None:
    failures: list[tuple[str, str]] = []

    async def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        scope = TaskScope("test", lambda name, error: failures.append((name, str(error))))
        await scope.spawn(asyncio.sleep(0), "fine")
        with pytest.raises(ValueError, match="broken"):
            await scope.spawn(fail(), "bad")
        scope.spawn(asyncio.sleep(1000), "cancelled")
        await scope.close()
        await scope.close()

    asyncio.run(main())
    assert failures == [("test/bad", "broken")]


def test_budget_refuses_beyond_its_limit_and_calls_back() -> None:
    budget = ByteBudget(100)
    called: list[str] = []
    assert budget.reserve(60)
    assert not budget.reserve(50)
    assert budget.used == 60
    budget.call_when_free(lambda: called.append("a"))
    budget.call_when_free(lambda: called.append("b"))
    budget.release(60)
    assert called == ["a", "b"]
    assert budget.used == 0
    budget.release(0)
    assert called == ["a", "b"]


def test_budget_lets_one_oversized_request_pass_alone() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(500)
    assert not budget.reserve(1)
    budget.release(500)
    assert budget.reserve(1)
    assert not budget.reserve(500)


def test_budget_stops_calling_back_once_it_is_full_again() -> None:
    budget = ByteBudget(100)
    called: list[str] = []

    def take(name: str, size: int) -> None:
        if budget.reserve(size):
            called.append(name)
        else:
            budget.call_when_free(lambda: take(name, size))

    assert budget.reserve(100)
    for name, size in (("a", 100), ("b", 40), ("c", 60)):
        take(name, size)
    budget.release(100)
    assert called == ["a"]
    budget.release(100)
    assert called == ["a", "b", "c"]


def test_a_waiter_refused_again_is_called_at_the_next_release_not_at_once() -> None:
    budget = ByteBudget(100)
    attempts: list[int] = []

    def retry() -> None:
        attempts.append(budget.used)
        budget.call_when_free(retry)

    budget.reserve(50)
    budget.reserve(30)
    budget.call_when_free(retry)
    budget.release(50)
    budget.release(30)
    assert attempts == [30, 0]


def test_offload_runs_elsewhere_and_returns_results_and_errors() -> None:
    async def main() -> None:
        offload = ThreadOffload(threads_max=1)
        assert await offload.run(divmod, 7, 2) == (3, 1)
        assert await offload.run(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ZeroDivisionError):
            await offload.run(divmod, 7, 0)
        offload.close()
        assert await offload.run(int, "3") == 3
        offload.close()

    asyncio.run(main())
