"""A broker in a process of its own, as `ottla start` runs it: it can be killed without notice."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from types import TracebackType

from ottla.testing.settings import SettingValue, properties

_READY = re.compile(r"Ready: (?P<host>\S+):(?P<port>\d+) in (?P<seconds>[\d.]+) s")


class BrokerProcess:
    """Start, kill, start again: port and data stay the same.

    Without `data_dir` the data is in a temporary directory that goes with `close` or the end of the `with`.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        data_dir: str | None = None,
        port: int = 0,
        log_level: str = "info",
    ) -> None:
        self._settings = properties(settings)
        self._own_dir = tempfile.mkdtemp(prefix="ottla-")
        self.data_dir = data_dir or f"{self._own_dir}/data"
        self.port = port
        self.seconds_to_ready = 0.0
        self._log_level = log_level
        self._log_path = f"{self._own_dir}/broker.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the broker wrote to standard error, over all its lives."""
        with open(self._log_path, errors="replace") as file:
            return file.read()

    def start(self) -> BrokerProcess:
        """Returns when clients can connect."""
        if self._process is not None:
            raise RuntimeError("the broker is already running")
        command = [sys.executable, "-m", "ottla.cli.main", "start"]
        command += ["--port", str(self.port), "--data-dir", self.data_dir, "--log-level", self._log_level]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with open(self._log_path, "a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if ready := _READY.match(line):
                self.port = int(ready["port"])
                self.seconds_to_ready = float(ready["seconds"])
                return self
        status = self._process.wait()
        self._process = None
        raise RuntimeError(f"the broker ended with status {status} before it was ready:\n{self.log}")

    def stop(self, timeout_seconds: float = 30) -> int:
        """A clean shutdown with SIGTERM; the status the process ended with."""
        return self._end(signal.SIGTERM, timeout_seconds)

    def kill9(self) -> None:
        """SIGKILL: no chance to sync, flush or say goodbye."""
        self._end(signal.SIGKILL, 30)

    def restart(self) -> BrokerProcess:
        """Kill, and start on the same port and data."""
        self.kill9()
        return self.start()

    def close(self) -> None:
        """End the process if it still runs, and remove the temporary directory."""
        if self._process is not None:
            self.kill9()
        shutil.rmtree(self._own_dir, ignore_errors=True)

    def __enter__(self) -> BrokerProcess:
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
        # Does nothing to a broker that has died by itself.
        process.send_signal(number)
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            self._process = None
            if process.stdout is not None:
                process.stdout.close()
        return status
