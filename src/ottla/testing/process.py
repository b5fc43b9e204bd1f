"""A broker in a process of its own, as `ottla start` runs it: it can be killed without notice."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ottla.runtime.net import free_ports
from ottla.testing.settings import SettingValue, properties

READY_SECONDS_MAX = 60.0
_READY = re.compile(r"Ready: (?P<host>\S+):(?P<port>\d+) in (?P<seconds>[\d.]+) s")


class BrokerProcess:
    """Start, kill, start again: port and data stay the same.

    Without `data_dir` the data is in a temporary directory that goes with `close` or the end of the `with`.
    Ctrl-C in a terminal ends it like every program that was started there, unless it `survives_ctrl_c`: then
    its clients find it while they finish, and it is there until it is stopped or closed.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        data_dir: str | None = None,
        port: int | None = None,
        log_level: str = "info",
        survives_ctrl_c: bool = False,
    ) -> None:
        self._settings = properties(settings)
        self._own_dir = tempfile.mkdtemp(prefix="ottla-")
        self.data_dir = data_dir or f"{self._own_dir}/data"
        self.port = free_ports("127.0.0.1", 1)[0] if port is None else port
        self.seconds_to_ready = 0.0
        self._log_level = log_level
        self._process_group = 0 if survives_ctrl_c else None
        self._log_path = f"{self._own_dir}/broker.log"
        self._process: subprocess.Popen[str] | None = None
        self.is_paused = False

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Paused or not; false for one that has died by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the broker wrote to standard error, over all its lives."""
        with open(self._log_path, errors="replace") as file:
            return file.read()

    def start(self) -> Self:
        """Returns when clients can connect."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Starts without waiting: brokers of a cluster wait for each other."""
        if self.is_running:
            raise RuntimeError("the broker is already running")
        self._forget()
        with open(self._log_path, "a") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=self._process_group,
            )

    def _command(self) -> list[str]:
        started = [sys.executable, "-m", "ottla.cli.main", "start", "--log-level", self._log_level]
        return [*started, *self._arguments()]

    def _arguments(self) -> list[str]:
        arguments = ["--port", str(self.port), "--data-dir", self.data_dir]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        return arguments

    def wait_ready(self, timeout_seconds: float = READY_SECONDS_MAX) -> Self:
        process = self._running()
        assert process.stdout is not None
        late = threading.Timer(timeout_seconds, process.kill)
        late.start()
        try:
            for line in process.stdout:
                if ready := _READY.match(line):
                    self.port = int(ready["port"])
                    self.seconds_to_ready = float(ready["seconds"])
                    return self
        finally:
            late.cancel()
        status = process.wait()
        self._forget()
        raise RuntimeError(f"the broker ended with status {status} before it was ready:\n{self.log}")

    def stop(self, timeout_seconds: float = 30) -> int:
        """A clean shutdown with SIGTERM; the status the process ended with."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def kill9(self) -> None:
        """SIGKILL: no chance to sync, flush or say goodbye."""
        self._end(signal.SIGKILL, 30)

    def pause(self) -> None:
        """SIGSTOP: the process is there, and does nothing, as on a machine that hangs."""
        self._running().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """It goes on, and believes that no time has passed."""
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    def restart(self) -> Self:
        """Kill, and start on the same port and data."""
        self.kill9()
        return self.start()

    def close(self) -> None:
        """End the process if it still runs, and remove the temporary directory."""
        if self._process is not None:
            self.kill9()
        shutil.rmtree(self._own_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _end(self, number: signal.Signals, timeout_seconds: float) -> int:
        process = self._running()
        # Does nothing to a broker that has died by itself; one that is paused could not hear it.
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._forget()
        return status

    def _forget(self) -> None:
        """A process that has ended."""
        process, self._process = self._process, None
        self.is_paused = False
        if process is not None and process.stdout is not None:
            process.stdout.close()
