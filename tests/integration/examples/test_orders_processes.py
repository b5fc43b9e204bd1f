"""The shop's services as processes: what is killed or stopped comes back, what has failed is told of."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.examples.orders_example import HERE
from tests.spark.processes import wait_until

from shop import processes  # isort: skip

assert Path(processes.__file__).is_relative_to(HERE)
# Ended by SIGTERM, a service that takes care of it ends with 0, as this one.
LASTING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print(os.getpid(), flush=True)
time.sleep(600)
"""
FAILING = "import sys; sys.exit('there is no such topic')"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[processes.Shop]:
    programs = {"one": LASTING, "two": LASTING, "three": LASTING, "failing": FAILING}
    commands = {name: [sys.executable, "-c", program] for name, program in programs.items()}
    monkeypatch.setattr(processes, "_commands", lambda *_: commands)
    made = processes.Shop("localhost:9092", tmp_path, {})
    try:
        yield made
    finally:
        made.close()


def pids(shop: processes.Shop, name: str) -> list[int]:
    """Of all its lives."""
    return [int(line) for line in (shop.directory / f"{name}.log").read_text().split()]


def test_what_is_killed_or_stopped_is_started_again(shop: processes.Shop) -> None:
    names = ("one", "two", "three")
    for name in names:
        shop.start(name)
    wait_until(lambda: all(pids(shop, name) for name in names), 30, "three services")
    os.kill(pids(shop, "one")[0], signal.SIGKILL)
    os.kill(pids(shop, "three")[0], signal.SIGTERM)
    again: list[str] = []
    wait_until(
        lambda: bool(again.extend(shop.programs.start_again()) or len(again) == 2), 30, "two that are gone"
    )
    shop.raise_dead()
    wait_until(lambda: [len(pids(shop, name)) for name in names] == [2, 1, 2], 30, "two that are back")
    assert sorted(again) == ["one", "three"]


def test_what_has_failed_is_told_of_and_stays(shop: processes.Shop) -> None:
    shop.start("failing")

    def has_failed() -> bool:
        assert shop.programs.start_again() == []
        try:
            shop.raise_dead()
        except RuntimeError as error:
            return "failing has ended with status 1" in str(error) and "no such topic" in str(error)
        return False

    wait_until(has_failed, 30, "a service that has failed")
