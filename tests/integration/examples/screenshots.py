"""Takes the pictures of the examples' pages: `make screenshots`, or one of them, by its name."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.chromium import Browser, browser

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DEADLINE_S = 240.0


class Shot(NamedTuple):
    picture: str
    address: str
    """How the demo prints it."""
    ready: str
    """What is true of the page when there is something to see."""
    size: tuple[int, int]
    before: str = ""


SHOTS = {
    "airline": Shot(
        "board.png",
        r"(http://localhost:\d+) is the board",
        "document.querySelectorAll('#cases .OFFERED').length > 2"
        " && document.querySelectorAll('#cases .REBOOKED').length > 3"
        " && document.querySelectorAll('.cancelled').length > 0",
        (1220, 620),
    ),
    "orders": Shot(
        "search.png",
        r"search: (http://localhost:\d+/search)",
        "document.querySelectorAll('td.FAILED').length > 8",
        (1000, 560),
        "document.querySelector('#q').value = 'failed'",
    ),
    "metrics": Shot(
        "dashboard.png",
        r"(http://localhost:\d+) shows the hosts",
        "document.querySelectorAll('meter').length === 10 && document.querySelector('.raised, .cleared')",
        (860, 430),
    ),
    "activity": Shot(
        "live.png",
        r"(http://localhost:\d+) shows what is going on",
        "document.querySelectorAll('#visits tr').length > 8"
        " && document.querySelectorAll('#pages tr').length > 4"
        " && +document.querySelector('#funnel tr:last-child .number').textContent > 9",
        (900, 620),
    ),
    "logs": Shot(
        "search.png",
        r"(http://localhost:\d+) finds lines",
        "document.querySelectorAll('tr.error').length > 12"
        " && document.querySelectorAll('.bars').length === 3"
        " && document.querySelector('.bars i:nth-child(2)')",
        (1100, 640),
        "document.querySelector('#q').value = 'host-0 checkout error'",
    ),
}


@contextmanager
def demo(name: str) -> Iterator[subprocess.Popen[str]]:
    here = EXAMPLES / name
    running = subprocess.Popen([sys.executable, "demo.py"], cwd=here, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)


def address_of(running: subprocess.Popen[str], printed: str) -> tuple[str, str]:
    """And what was printed before it."""
    assert running.stdout is not None
    before = ""
    for line in running.stdout:
        before += line
        if found := re.search(printed, line):
            return found[1], before
    raise RuntimeError(f"the demo has ended with {running.wait()} and printed no {printed}: {before}")


def logs_of(printed: str) -> str:
    """The ends of what a demo's pipelines have said."""
    directory = re.search(r"(/\S+)/\*\.log|logs and mails: (\S+)", printed)
    assert directory is not None, printed
    return "\n".join(
        path.read_text()[-2000:]
        for name in ("run", "pipelines")
        for path in Path(directory[1] or directory[2]).glob(f"{name}*.log")
    )


def wait_served(address: str, deadline: float) -> None:
    while True:
        try:
            urllib.request.urlopen(address, timeout=10).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def take(name: str, shot: Shot, window: Browser) -> None:
    with demo(name) as running:
        address, printed = address_of(running, shot.address)
        window.resize(*shot.size)
        deadline = time.monotonic() + DEADLINE_S
        wait_served(address, deadline)
        window.open(address)
        window.run(shot.before or "0")
        while not window.run(f"!!({shot.ready})"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name}: never true: {shot.ready}\n{window.text()}\n{logs_of(printed)}")
            time.sleep(0.2)
        window.screenshot(EXAMPLES / name / shot.picture)


def main(names: list[str]) -> None:
    for name in names or SHOTS:
        with browser() as window:
            window.prefer("light")
            take(name, SHOTS[name], window)


if __name__ == "__main__":
    main(sys.argv[1:])
