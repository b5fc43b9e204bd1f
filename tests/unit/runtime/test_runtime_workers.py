"""Jobs in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import worker_steps

from ottla.runtime.workers import Job, ProcessWorkers, Slice, WorkerDied, take_slice

BYTES_MAX = 1 << 40


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def run(scenario: Callable[[ProcessWorkers], Awaitable[None]], **options: float) -> None:
    async def main() -> None:
        workers = ProcessWorkers(**options)
        try:
            await scenario(workers)
        finally:
            await workers.close()

    asyncio.run(main())


async def results(job: Job) -> list[Any]:
    found = []
    try:
        while True:
            _, some, ended = await job.advance(BYTES_MAX)
            found += some
            if ended:
                return found
    finally:
        await job.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.01)


def test_results_come_in_order_from_another_process_of_low_priority() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        *found, (_, pid, niceness) = await results(await workers.begin(worker_steps.numbered, 3))
        assert found == ["result 0", "result 1", "result 2"]
        assert pid != os.getpid()
        assert niceness == min(os.nice(0) + 10, 19)
        *_, (_, again, _) = await results(await workers.begin(worker_steps.numbered, 1))
        assert again == pid, "a worker is used again"

    run(scenario)


def test_a_slice_ends_with_its_bytes() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        job = await workers.begin(worker_steps.numbered, 5)
        assert await job.advance(1500) == Slice(2000, ["result 0"], False)
        assert (await job.advance(1000)).results == ["result 1"]
        await job.close()

    run(scenario)


def test_an_error_is_raised_here_and_the_worker_goes_on() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            await results(await workers.begin(worker_steps.failing, "/nowhere"))
        assert (await results(await workers.begin(worker_steps.numbered, 1)))[0] == "result 0"

    run(scenario)


def test_jobs_run_side_by_side_in_processes_of_their_own() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        jobs = [await workers.begin(worker_steps.endless) for _ in range(2)]
        slices = await asyncio.gather(*(job.advance(BYTES_MAX) for job in jobs))
        pids = {found.results[0][1] for found in slices}
        assert len(pids) == 2
        for job in jobs:
            await job.close()
        for pid in sorted(pids):
            await wait_gone(pid)

    run(scenario)


def test_the_death_of_a_worker_is_told_and_the_next_job_gets_another() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        job = await workers.begin(worker_steps.endless)
        (_, pid) = (await job.advance(BYTES_MAX)).results[0]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=str(pid)):
            await job.advance(BYTES_MAX)
        await job.close()
        assert (await results(await workers.begin(worker_steps.numbered, 1)))[0] == "result 0"

    run(scenario)


def test_idle_workers_end() -> None:
    async def scenario(workers: ProcessWorkers) -> None:
        *_, (_, pid, _) = await results(await workers.begin(worker_steps.numbered, 1))
        await wait_gone_or_zombie(pid)

    async def wait_gone_or_zombie(pid: int) -> None:
        deadline = time.monotonic() + 10
        while is_running(pid) and "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    run(scenario, idle_seconds=0.05)


def test_a_worker_does_not_outlive_whoever_started_it() -> None:
    program = (
        "import asyncio, os, sys, worker_steps\n"
        "from ottla.runtime.workers import ProcessWorkers\n"
        "async def main():\n"
        "    job = await ProcessWorkers().begin(worker_steps.endless)\n"
        "    print((await job.advance(1)).results[0][1], flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    asyncio.run(wait_gone(int(ended.stdout)))


def test_a_slice_ends_when_its_time_is_over() -> None:
    now = iter([0.0, 0.1, 0.2, 0.6, 0.7])
    steps = (step for step in [1, "a", 2, "b"])
    assert take_slice(steps, lambda: next(now), 0.5, 100) == Slice(1, ["a"], False)
