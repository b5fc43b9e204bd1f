"""Programs of one machine that end together; what each says goes to a file of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

STOP_S_MAX = 60.0
# Also where the command itself is not in the path.
OTTLA = (sys.executable, "-m", "ottla.cli.main")
# Ctrl-C, `kill`, and the end of the terminal.
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cleanup() -> Iterator[ExitStack]:
    """What is put on the stack is done however the program ends: all signals are KeyboardInterrupt inside.

    Once is enough: a second Ctrl-C does not keep it from being done.
    """
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in ENDINGS}
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    stack = ExitStack()
    try:
        yield stack
    finally:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        try:
            stack.close()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Programs:
    """In the directory `here`, with files NAME.log in `logs`, and whatever they leave behind."""

    def __init__(self, here: Path, logs: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._here = here
        self._logs = logs
        self._environment = {**environment, "TMPDIR": str(logs)}
        self._commands: dict[str, Sequence[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def names(self) -> list[str]:
        return list(self._running)

    def start(self, name: str, command: Sequence[str]) -> None:
        self._commands[name] = command
        with (self._logs / f"{name}.log").open("ab") as log:
            # In a group of its own, so that Java and Python workers of Spark end with it, and Ctrl-C in the
            # terminal does not reach it before `close` does.
            self._running[name] = subprocess.Popen(
                command,
                cwd=self._here,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )

    def kill(self, name: str) -> None:
        """Without notice, and with all that it has started."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_again(self) -> list[str]:
        """What somebody else has killed or stopped; says what. Programs that have failed stay down."""
        ended = {name: process.poll() for name, process in self._running.items()}
        gone = [name for name, status in ended.items() if status is not None and status <= 0]
        for name in gone:
            self.kill(name)  # Java and workers of Spark may have been left behind
            self.start(name, self._commands[name])
        return gone

    def raise_dead(self) -> None:
        """Says which program has ended by itself, and why."""
        for name, process in self._running.items():
            if process.poll() is not None:
                tail = (self._logs / f"{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} has ended with status {process.returncode}:\n{tail}")

    def close(self) -> None:
        running = [process for process in self._running.values() if process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_S_MAX
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
