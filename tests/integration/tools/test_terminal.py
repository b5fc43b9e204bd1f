"""Tools on a terminal: tables, live views, bars and the shell, seen through a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import InProcessBroker

TIMEOUT_S = 30.0
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class Terminal:
    """What a person would see, and can type."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.raw = ""
        self._seen = 0

    @property
    def text(self) -> str:
        return CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, pattern: str) -> str:
        """Wait until what came since the last time has this in it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = re.search(pattern, self.text[self._seen :])
            if found:
                self._seen += found.end()
                return found[0]
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{pattern} is not in:\n{self.text[self._seen :]}")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Everything up to the end of the process; its status."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, timeout_s: float) -> bool:
        if timeout_s <= 0 or not select.select([self._descriptor], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            # Linux says so when the last process on the other side has gone.
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(*arguments: str, columns: int = 120, stdin: bool = True) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.main", *arguments],
        stdin=theirs if stdin else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_tables(broker: InProcessBroker, topic: str) -> None:
    place = ("--bootstrap-server", broker.bootstrap_servers)
    with terminal("topics", "--describe", "--topic", topic, *place) as seen:
        assert seen.end() == 0
    assert re.search(r"Topic +Partition +Leader +Replicas +Isr", seen.text)
    assert "PartitionCount:" not in seen.text
    assert "\x1b[1;36m" in seen.raw
    with terminal("features", *place, "describe") as seen:
        assert seen.end() == 0
    assert re.search(r"metadata\.version +4\.0-IV1 +4\.3-IV0 +4\.1-IV1", seen.text)
    with terminal("topics", "--describe", "--topic", topic, *place, "--json") as seen:
        assert seen.end() == 0
    assert "\x1b[" not in seen.raw


def test_a_live_view(broker: InProcessBroker, topic: str, tool: Any) -> None:
    place = ("--bootstrap-server", broker.bootstrap_servers)
    group = f"watched-{topic}"[:60]
    reading = ("--from-beginning", "--max-messages", "4", "--group", group)
    assert tool("console-consumer", "--topic", topic, *reading, *place).status == 0
    watching = ("consumer-groups", "--describe", "--group", group, *place, "--watch")
    with terminal(*watching, columns=200) as seen:
        seen.expect(rf"{topic} +0 +4 +10 +6")
        assert tool("console-consumer", "--topic", topic, *reading, *place).status == 0
        seen.expect(rf"{topic} +0 +8 +10 +2")
        seen.process.send_signal(signal.SIGINT)
        assert seen.end() in {0, 130}
    # The cursor is hidden while the view is drawn, and must be back afterwards.
    assert seen.raw.rfind("\x1b[?25h") > seen.raw.rfind("\x1b[?25l") >= 0


def test_a_progress_bar(broker: InProcessBroker, topic: str) -> None:
    place = ("--bootstrap-server", broker.bootstrap_servers)
    load = (
        "--num-records",
        "400",
        "--record-size",
        "10",
        "--throughput",
        "800",
        "--reporting-interval",
        "100",
    )
    with terminal("producer-perf-test", "--topic", topic, *load, *place) as seen:
        seen.expect(r"writing to \S+ +\S*━")
        seen.expect("400 records sent")
        assert seen.end() == 0


def test_lines_are_prompted_for(broker: InProcessBroker, topic: str, tool: Any) -> None:
    place = ("--bootstrap-server", broker.bootstrap_servers)
    with terminal("console-producer", "--topic", topic, *place) as seen:
        seen.expect(">")
        seen.type("typed by hand\n")
        seen.expect("typed by hand\n>")
        seen.type("\x04")
        assert seen.end() == 0
    ending = ("--partition", "0", "--offset", "10", "--max-messages", "1")
    assert tool("console-consumer", "--topic", topic, *ending, *place).out == "typed by hand\n"


def test_the_metadata_shell(tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as running:
        created = ("topics", "--create", "--topic", "first", "--bootstrap-server", running.bootstrap_servers)
        subprocess.run([sys.executable, "-m", "ottla.cli.main", *created], check=True)
        with terminal("metadata-shell", "--directory", str(tmp_path), columns=60) as seen:
            seen.expect(r"\[ Ottla Metadata Shell \]\n>> ")
            seen.type("cd /image/topics/byName\n")
            seen.expect(">> ")
            seen.type("ls\n")
            seen.expect(r"first\n")
            seen.type("cat fi\t")
            seen.expect("cat first/")
            seen.type("na\t\n")
            seen.expect(r"name ?\nfirst\n>> ")
            # The shell follows the broker whose directory it reads.
            again = (*created[:3], "second", *created[4:])
            subprocess.run([sys.executable, "-m", "ottla.cli.main", *again], check=True)
            seen.type("ls\n")
            seen.expect(r"first +second\n")
            seen.type("history 2\n")
            seen.expect(r"3 +ls\n +4 +history 2\n")
            seen.type("pwd\n")
            seen.expect("/image/topics/byName\n")
            seen.type("man tree\n")
            seen.expect("tree: Show the contents of metadata nodes in a tree structure.")
            seen.type("frobnicate\n")
            seen.expect("invalid choice: 'frobnicate'")
            seen.type("ls '\n")
            seen.expect("No closing quotation")
            seen.type("exit\n")
            assert seen.end() == 0


@pytest.mark.parametrize("words", [(), ("--snapshot", "a", "--directory", "b")])
def test_the_shell_needs_one_place(tool: Any, words: tuple[str, ...]) -> None:
    refused = tool("metadata-shell", *words, "ls")
    assert refused.status == 1
    assert "give either --snapshot or --directory" in refused.err
