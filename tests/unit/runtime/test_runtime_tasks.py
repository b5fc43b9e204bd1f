"""TaskScope, ByteBudget and ThreadOffload."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

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


class Waiter:
    """Wants bytes, and gives them back when told to."""

    def __init__(self, budget: ByteBudget, name: str, size: int, granted: list[str]) -> None:
        self.budget, self.name, self.size, self.granted = budget, name, size, granted
        budget.call_when_reserved(size, self.take)

    def take(self) -> None:
        self.granted.append(self.name)


def test_budget_refuses_beyond_its_limit_and_grants_in_order() -> None:
    budget = ByteBudget(100)
    granted: list[str] = []
    assert budget.reserve(60)
    assert not budget.reserve(50)
    assert budget.used == 60
    for name, size in (("a", 50), ("b", 50), ("c", 10)):
        Waiter(budget, name, size, granted)
    assert (granted, budget.waiting) == ([], 3)
    budget.release(60)
    assert (granted, budget.used, budget.waiting) == (["a", "b"], 100, 1)
    budget.release(50)
    assert (granted, budget.used, budget.waiting) == (["a", "b", "c"], 60, 0)


def test_budget_lets_one_oversized_request_pass_alone() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(500)
    assert not budget.reserve(1)
    budget.release(500)
    assert budget.reserve(1)
    assert not budget.reserve(500)


def test_nobody_overtakes_who_waits_for_much() -> None:
    budget = ByteBudget(100)
    granted: list[str] = []
    assert budget.reserve(60)
    Waiter(budget, "much", 90, granted)
    assert not budget.reserve(10)
    Waiter(budget, "little", 10, granted)
    assert granted == []
    budget.release(60)
    assert granted == ["much", "little"]


def test_who_leaves_the_line_lets_the_next_pass() -> None:
    budget = ByteBudget(100)
    granted: list[str] = []
    assert budget.reserve(60)
    much = Waiter(budget, "much", 90, granted)
    Waiter(budget, "little", 10, granted)
    budget.leave(much.take)
    assert (granted, budget.used) == (["little"], 70)
    budget.leave(much.take)
    assert budget.used == 70


def test_a_release_calls_only_those_who_get_something() -> None:
    """However many wait: a release that looked at all of them would take all day with thousands."""
    budget = ByteBudget(100)
    granted: list[str] = []
    assert budget.reserve(100)
    for number in range(1000):
        Waiter(budget, str(number), 100, granted)
    budget.release(100)
    assert granted == ["0"]


def test_those_who_give_back_at_once_do_not_nest() -> None:
    budget = ByteBudget(100)
    depths: list[int] = []
    depth = 0

    def give_back() -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        budget.release(100)
        depth -= 1

    assert budget.reserve(100)
    for _ in range(3000):
        budget.call_when_reserved(100, partial(give_back))
    budget.release(100)
    assert depths == [1] * 3000
    assert budget.used == 0


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


def test_those_who_want_much_leave_a_quarter_to_the_others() -> None:
    budget = ByteBudget(1000, ordinary_max=50)
    granted: list[str] = []
    assert budget.reserve(700)
    assert not budget.reserve(100)
    more = Waiter(budget, "more", 500, granted)
    Waiter(budget, "much", 400, granted)
    gone = Waiter(budget, "gone", 300, granted)
    budget.leave(gone.take)
    # While it waits, those who want little have their quarter, and no more.
    for _ in range(5):
        assert budget.reserve(50)
    assert not budget.reserve(50)
    Waiter(budget, "little", 40, granted)
    budget.release(50)
    assert granted == ["little"]
    budget.release(700)
    assert granted == ["little", "much"]
    assert budget.used == 4 * 50 + 40 + 400
    budget.leave(more.take)
    assert budget.waiting == 0


def test_one_oversized_request_passes_beside_little_ones() -> None:
    budget = ByteBudget(1000, ordinary_max=50)
    for _ in range(5):
        assert budget.reserve(50)
    assert budget.reserve(1000)
    assert not budget.reserve(51)
    budget.release(50)
    assert budget.reserve(50)


def test_what_is_held_counts_for_what_is_wanted_instead() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(60)
    assert budget.reserve(90, 60)
    assert budget.used == 90
    assert not budget.reserve(20)
