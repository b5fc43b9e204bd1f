"""Starting and stopping the brokers under test, each alone on the machine with a fresh data directory."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import encoding
from bench.connection import Connection, connect_when_open
from bench.process import Memory, cpu_seconds, memory
from ottla.runtime.net import free_ports

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
FIRST_TOPIC = "first"
# Errors a broker answers with while the topic it just created is not served yet.
NOT_YET = {3, 5, 6, 7}


class BrokerFailed(Exception):
    """A broker did not start; the text holds the end of its output."""


class BrokerKind(Protocol):
    @property
    def name(self) -> str: ...

    def prepare(self, port: int, data_dir: str) -> None:
        """What comes before the first start of a data directory and is not part of the start time."""

    def argv(self, port: int, data_dir: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class CommandBroker:
    """A broker that one command starts, with {port} and {dir} in it."""

    name: str
    command: str

    def prepare(self, port: int, data_dir: str) -> None:
        Path(data_dir).mkdir(exist_ok=True)

    def argv(self, port: int, data_dir: str) -> list[str]:
        return [word.format(port=port, dir=data_dir) for word in shlex.split(self.command)]


def ottla(command: str | None = None) -> CommandBroker:
    """The `ottla` installed beside the running Python, unless told otherwise."""
    script = Path(sys.executable).with_name("ottla")
    default = f"{shlex.quote(str(script))} start --port {{port}} --data-dir {{dir}}"
    return CommandBroker("Ottla", command or default)


@dataclass(slots=True)
class RunningBroker:
    name: str
    port: int
    process: subprocess.Popen[bytes]
    output: Path
    first_ack_s: float = 0.0

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def memory(self) -> Memory:
        return memory(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(kind: BrokerKind, work_dir: str | None = None) -> Iterator[RunningBroker]:
    """A broker that has acknowledged its first record; everything it wrote is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=work_dir))
    try:
        with started(kind, str(home / "data"), home / "output") as broker:
            yield broker
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def started(kind: BrokerKind, data_dir: str, output: Path) -> Iterator[RunningBroker]:
    """A broker on a data directory that stays."""
    port = free_port()
    kind.prepare(port, data_dir)
    argv = kind.argv(port, data_dir)
    with output.open("wb") as sink:
        begin = time.monotonic()
        try:
            process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT)
        except OSError as error:
            raise BrokerFailed(f"{kind.name} could not be started with {shlex.join(argv)}: {error}") from None
    broker = RunningBroker(kind.name, port, process, output)
    try:
        try:
            _await_first_ack(broker)
        except OSError as error:
            tail = output.read_text(errors="replace")[-2000:]
            raise BrokerFailed(f"{kind.name}: {error}\n{tail}") from None
        broker.first_ack_s = time.monotonic() - begin
        yield broker
    finally:
        broker.stop()


def free_port() -> int:
    return free_ports("127.0.0.1", 1)[0]


def _await_first_ack(broker: RunningBroker) -> None:
    connection = connect_when_open(broker.port, lambda: broker.process.poll() is None, START_TIMEOUT_S)
    connection.call(encoding.create_topic_frame(FIRST_TOPIC, 1))
    batch = encoding.record_batch([b"first"], int(time.time() * 1000))
    request = encoding.produce_frame(FIRST_TOPIC, 0, batch, encoding.ACKS_ALL)
    deadline = time.monotonic() + START_TIMEOUT_S
    while error := _produce_error(connection, request):
        if error not in NOT_YET or time.monotonic() > deadline:
            raise ConnectionError(f"the first record was refused with error code {error}")
        time.sleep(0.002)
    connection.close()


def _produce_error(connection: Connection, request: bytes) -> int:
    answer = connection.call(request)
    (error,) = answer.array(
        lambda topic: (topic.string(), topic.array(lambda item: (item.int32(), item.int16())[1])[0])[1]
    )
    return error
