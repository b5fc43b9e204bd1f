"""A worker in a process of its own, which can be killed; and faults of it, its broker and its database."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.integration.connect.postgres_server import PostgresServer

from ottla.testing import BrokerProcess

READY_S = 120.0


class WorkerProcess:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="ottla-worker-")
        self._file = Path(self._home.name) / "worker.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self._log = Path(self._home.name) / "log"
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        argv = [sys.executable, "-m", "ottla.cli.main", "connect-distributed", str(self._file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("Ready: http://"):
                self.address = line.removeprefix("Ready: http://").partition(",")[0]
                return
        raise RuntimeError(f"the worker did not start:\n{self.log}")

    def kill9(self) -> None:
        """With what it has started: Spark's Java ends with its driver."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(READY_S)
            self._process = None

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        self._home.cleanup()


class Faults:
    """One after the other, of each kind about as often, with time in between to go on."""

    def __init__(
        self, seed: str, worker: WorkerProcess, broker: BrokerProcess, server: PostgresServer | None = None
    ) -> None:
        self._random = random.Random(seed)
        self._done = 0
        self._worker, self._broker, self._server = worker, broker, server
        self.kinds: dict[str, Callable[[], None]] = {
            "worker": self._kill_worker,
            "broker": self._kill_broker,
        }
        if server is not None:
            self.kinds |= {"connections": self._end_connections, "database": self._kill_database}

    def run(self, count: int, say: Callable[[str], None]) -> list[str]:
        names: Sequence[str] = list(self.kinds)
        done = []
        for number in range(count):
            time.sleep(self._random.uniform(0.5, 3.0))
            name = names[self._done % len(names)]
            self._done += 1
            say(f"fault {number + 1} of {count}: {name}")
            self.kinds[name]()
            done.append(name)
        return done

    def _kill_worker(self) -> None:
        self._worker.kill9()
        self._worker.start()

    def _kill_broker(self) -> None:
        self._broker.kill9()
        time.sleep(self._random.uniform(0.0, 1.0))
        self._broker.start()

    def _end_connections(self) -> None:
        assert self._server is not None
        with self._server.connect() as database:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type IN ('walsender', 'client backend')"
            )

    def _kill_database(self) -> None:
        assert self._server is not None
        self._server.stop(signal.SIGQUIT)
        self._server.start()
