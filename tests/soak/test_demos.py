"""`make -C examples/NAME demo` shows something within two minutes, and Ctrl-C ends all of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.process import command_line, process_tree
from tests.integration.examples.test_log_examples import EXAMPLES

SHOWN_S_MAX = 120.0
ENDED_S_MAX = 60.0
# What is printed, or, with a path, what the page at the first address that is printed answers.
SHOWN = {
    "activity": ("/data", r'"views":\d'),
    "airline": ("/data", "OFFERED"),
    "keyvalue": ("", "node 3 is back"),
    "ledger": ("", "transfers more"),
    "logs": ("", r"[1-9]\d* found"),
    "messaging": ("", "killing cleo"),
    "metrics": ("/data", '"mean"'),
    "orders": ("", "VALIDATED"),
    "streams": ("", r"[1-9]\d* counted"),
}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]


class Demo:
    def __init__(self, name: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._make = subprocess.Popen(
                ["make", "-C", str(EXAMPLES / name), "demo"],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def page(self, path: str) -> str:
        address = re.search(r"http://localhost:\d+", self.printed)
        try:
            with urllib.request.urlopen(f"{address[0] if address else 'http://'}{path}", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except (OSError, ValueError):
            return ""

    @property
    def mails(self) -> int:
        return int(re.findall(r"mails: (\d+)", self.printed)[-1])

    def kill(self, part_of_command: str) -> None:
        """Without notice, the first program that was started with it."""
        pid = next(pid for pid in process_tree(self._make.pid) if part_of_command in command_line(pid))
        os.kill(pid, signal.SIGKILL)

    def wait_shown(self, path: str, pattern: str) -> None:
        self.wait(lambda: bool(re.search(pattern, self.page(path) if path else self.printed)))

    def wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SHOWN_S_MAX
        while not is_so():
            assert self._make.poll() is None, self.printed
            assert time.monotonic() < deadline, self.printed
            time.sleep(0.1)

    def wait_ended(self) -> None:
        """By Ctrl-C, which everything in the terminal gets."""
        started = process_tree(self._make.pid)
        os.killpg(self._make.pid, signal.SIGINT)
        last = threading.Timer(ENDED_S_MAX, lambda: [os.kill(pid, signal.SIGKILL) for pid in alive(started)])
        last.start()
        self._make.wait()
        while alive(started) and last.is_alive():
            time.sleep(0.05)
        assert last.is_alive(), f"has not ended after {ENDED_S_MAX} s: {self.printed}"
        last.cancel()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and _is_running(pid)]


def _is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_demo_shows_something_soon_and_ends(name: str, tmp_path: Path) -> None:
    demo = Demo(name, tmp_path / "printed")
    try:
        demo.wait_shown(*SHOWN[name])
    finally:
        demo.wait_ended()
    assert "Traceback" not in demo.printed


def test_what_is_killed_in_the_shop_comes_back(tmp_path: Path) -> None:
    demo = Demo("orders", tmp_path / "printed")
    try:
        demo.wait_shown(*SHOWN["orders"])
        for victim, told in (
            ("email_service.py", "email is gone"),
            ("broker-2/", "broker 2 is gone"),
            ("aggregator.py", "pipelines is gone"),
        ):
            demo.kill(victim)
            demo.wait_shown("", f"{told}, and is started again")
            mails = demo.mails
            demo.wait(lambda: demo.mails > mails + 20)  # noqa: B023
    finally:
        demo.wait_ended()
    assert "Traceback" not in demo.printed


def test_every_example_has_a_demo() -> None:
    have_readme = {path.parent.name for path in EXAMPLES.glob("*/README.md")} - {"container"}
    assert have_readme == SHOWN.keys()
