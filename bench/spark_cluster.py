"""A real Spark cluster on this machine, from the pip install: every part of it a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.brokers import free_port
from bench.process import command_line, process_tree

READY_SECONDS = 120
CLASSES = "org.apache.spark.deploy"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A master and workers of one core each."""

    master: str
    workers: list[subprocess.Popen[bytes]]
    _start_worker: Callable[[], subprocess.Popen[bytes]]

    def executors(self) -> list[int]:
        """Their process ids."""
        return [pid for worker in self.workers for pid in executors_of(worker)]

    def kill_executor(self) -> bool:
        """The worker starts another one."""
        for pid in self.executors()[:1]:
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def lose_worker(self) -> None:
        """The oldest one, with its executor, as if the machine had gone."""
        _kill_all(self.workers.pop(0))

    def add_worker(self) -> subprocess.Popen[bytes]:
        worker = self._start_worker()
        self.workers.append(worker)
        return worker


def executors_of(worker: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid in process_tree(worker.pid) if "CoarseGrainedExecutorBackend" in command_line(pid)]


@contextmanager
def spark_cluster(work_dir: Path, worker_count: int) -> Iterator[SparkCluster]:
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    environment = os.environ | {
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(work_dir / "work"),
    }
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [f"{home}/bin/spark-class", f"{CLASSES}.{name}", "--host", "127.0.0.1", *arguments]
        with (work_dir / f"{name}-{len(running)}.log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=environment)
        running.append(process)
        return process

    try:
        start("master.Master", "--port", str(port), "--webui-port", "0")
        log = work_dir / "master.Master-0.log"
        _wait(lambda: "I have been elected leader" in log.read_text(), "no Spark master")
        arguments = ("--cores", "1", "--memory", "1g", "--webui-port", "0", master)
        start_worker = partial(start, "worker.Worker", *arguments)
        workers = [start_worker() for _ in range(worker_count)]
        _wait(lambda: log.read_text().count("Registering worker") >= worker_count, "no Spark workers")
        yield SparkCluster(master, workers, start_worker)
    finally:
        for process in reversed(running):
            _kill_all(process)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    below = process_tree(process.pid)[1:]
    process.kill()
    process.wait()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait(is_ready: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} after {READY_SECONDS} s")
        time.sleep(0.05)
