"""What the kill tests start and kill: a broker, a pipeline with its Java machine and workers, a cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bench import kafka_peer
from bench.brokers import free_port
from bench.process import command_line, process_tree

READY_SECONDS = 120


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds} s: {what}")
        time.sleep(0.05)


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    def restart(self) -> object:
        """Kill without notice, and start again on the same port and data."""
        ...


class KafkaProcess:
    """Apache Kafka with the interface of `ottla.testing.BrokerProcess`."""

    def __init__(self, work_dir: Path) -> None:
        self._kind = kafka_peer.ApacheKafka(kafka_peer.fetch())
        self._port = free_port()
        self._data_dir = str(work_dir / "kafka")
        self._output = work_dir / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._kind.prepare(self._port, self._data_dir)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        argv = self._kind.argv(self._port, self._data_dir)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        wait_until(lambda: b"Kafka Server started" in self._output.read_bytes(), READY_SECONDS, "no Kafka")

    def kill9(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.kill9()
        self.start()


class Pipeline:
    """tests/spark/pipeline.py, with what it has printed."""

    def __init__(self, arguments: dict[str, str], work_dir: Path) -> None:
        self._argv = [sys.executable, str(Path(__file__).with_name("pipeline.py"))]
        self._argv += [part for name, value in arguments.items() for part in (f"--{name}", value)]
        self._output = work_dir / "pipeline.log"
        self._process: subprocess.Popen[str] | None = None
        self.batches_done = 0
        """Over all its lives."""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._output.read_text(errors="replace")

    def start(self) -> None:
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        with self._output.open("a") as errors:
            self._process = subprocess.Popen(
                self._argv, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def kill_driver(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_java(self) -> bool:
        return self._kill_one(lambda pid, command: "java" in command.split()[0])

    def kill_worker(self) -> bool:
        """One of the Python processes that read and write, not the one that starts them."""
        return self._kill_one(
            lambda pid, command: (
                "pyspark" in command and any("pyspark" in c for c in [command_line(_parent(pid))])
            )
        )

    def end(self) -> None:
        if self.is_running:
            below = [pid for pid, _ in self._below()]
            self.kill_driver()
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _kill_one(self, is_wanted: Callable[[int, str], bool]) -> bool:
        found = [pid for pid, command in self._below() if command and is_wanted(pid, command)]
        with suppress(ProcessLookupError):
            if found:
                os.kill(found[-1], signal.SIGKILL)
                return True
        return False

    def _below(self) -> Iterator[tuple[int, str]]:
        assert self._process is not None
        return ((pid, command_line(pid)) for pid in process_tree(self._process.pid)[1:])

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._output.open("a") as output:
                output.write(line)
            self.batches_done += line.startswith("batch ")


def _parent(pid: int) -> int:
    found = re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
