"""Follows a guide as a reader would: saves the files it shows, types its commands, compares what they print.

Of a fenced block, the words behind the language say what to do with it; pages do not show them:

- `python file=NAME`: save it. Languages other than `sh` without a file are for reading only.
- `sh`: type it. A block `text` right behind it is what has to come out, `…` stands for anything.
- `sh stays`: type it in a terminal of its own, where it stays; a broker is waited for. Programs get Ctrl-C
  before the block with `ottla stop`.
- `sh ctrl-c`: type it, and Ctrl-C when all of the `text` behind it has come out.
- `sh again`: type it again until that comes out, since what it asks for follows a moment later.
- `sh run=no`: not here (installing, another machine).

Ports are exchanged for free ones, so that many readers may be at work on one machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ottla.testing import free_ports

HOST = "127.0.0.1"
DEADLINE_SECONDS = 200.0
BROKER_PORTS = [str(port) for port in range(9092, 9098)]
"""In a row, as those of several brokers on one machine are."""
OTHER_PORTS = ["8080", "8081", "8083", "9404"]


class Block(NamedTuple):
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks_of(page: str) -> list[Block]:
    found = re.findall(r"^```([a-z]*)([^\n`]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [Block(language, tuple(words.split()), text) for language, words, text in found]


def extras_of(page: str) -> set[str]:
    """Those of the first install line, or named first: what the reader was told to bring."""
    named = re.search(r"(?:ottla|\.|whl)\[([a-z,]+)\]|extras? `([a-z,]+)`", page)
    assert named is not None, "the page says nowhere which extras it needs"
    return set((named[1] or named[2]).split(","))


class Reader:
    def __init__(self, executables: Path, directory: Path) -> None:
        self.directory = directory / "reader"
        self.directory.mkdir()
        self._stay: list[_Terminal] = []
        free = [*_free_in_a_row(len(BROKER_PORTS)), *free_ports(HOST, len(OTHER_PORTS))]
        self._ports = dict(zip([*BROKER_PORTS, *OTHER_PORTS], map(str, free), strict=True))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment = inherited | {
            "PATH": f"{executables}:{os.environ['PATH']}",
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "PYTHONUNBUFFERED": "1",
            "VIRTUAL_ENV": str(executables.parent),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for terminal in self._stay:
            terminal.kill()

    def follow(self, page: str) -> None:
        blocks = blocks_of(page)
        for block, behind in zip(blocks, [*blocks[1:], Block("", (), "")], strict=True):
            if block.file is not None:
                (self.directory / block.file).write_text(self._here(block.text))
            elif block.language == "sh" and "run=no" not in block.words:
                expected = behind.text if behind.language == "text" else ""
                (self._type_again if "again" in block.words else self._type)(block, expected)

    def wait_ended(self) -> None:
        """All that stayed has to have ended, as the last lines of a guide should see to."""
        for terminal in self._stay:
            terminal.wait_ended()

    def _here(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return re.sub(r"\bottla start\b", f"ottla start --port {self._ports['9092']}", text)

    def _type_again(self, block: Block, expected: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return self._type(block, expected)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _type(self, block: Block, expected: str) -> None:
        if "ottla stop" in block.text:
            self._interrupt_programs()
        terminal = _Terminal(self._here(block.text), self.directory, self._environment)
        if "stays" in block.words:
            self._stay.append(terminal)
            if terminal.is_broker:
                terminal.wait_printed("^Ready:")
            elif expected:
                terminal.wait_printed(_pattern(expected))
            return
        try:
            if "ctrl-c" in block.words:
                terminal.wait_printed(_pattern(expected))
                terminal.interrupt()
                return
            status = terminal.wait_ended()
            assert status == 0, f"ended with {status}: {terminal}"
            if expected:
                terminal.wait_printed(_pattern(expected))
        finally:
            terminal.kill()

    def _interrupt_programs(self) -> None:
        """Ctrl-C in their terminals, before the brokers go."""
        for terminal in self._stay:
            if not terminal.is_broker:
                terminal.interrupt()


class _Terminal:
    def __init__(self, commands: str, directory: Path, environment: Mapping[str, str]) -> None:
        # Files, not pipes: nobody reads what a broker says.
        files = Path(tempfile.mkdtemp(dir=directory.parent))
        self._printed, self._complaints = files / "printed", files / "complaints"
        self._commands = commands
        self.is_broker = "ottla start" in commands
        with open(self._printed, "w") as out, open(self._complaints, "w") as err:
            self._process = subprocess.Popen(
                ["sh", "-e", "-c", commands],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __str__(self) -> str:
        return f"\n$ {self._commands}\n{self._printed.read_text()}\n{self._complaints.read_text()}"

    def wait_printed(self, pattern: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            may_print_more = self._process.poll() is None and time.monotonic() < deadline
            if re.search(pattern, self._printed.read_text(), re.MULTILINE):
                return
            assert may_print_more, f"not {pattern}: {self}"
            time.sleep(0.05)

    def interrupt(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)
        self.wait_ended()

    def wait_ended(self) -> int:
        try:
            return self._process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"has not ended: {self}") from None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _pattern(expected: str) -> str:
    lines = [re.escape(line).replace(r"\ …", ".*").replace("…", ".*") for line in expected.splitlines()]
    return "^" + r"[ \t]*\n".join(lines) + r"[ \t]*$"


def _free_in_a_row(count: int) -> range:
    while True:
        [first] = free_ports(HOST, 1)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind((HOST, port))
            return range(first, first + count)
