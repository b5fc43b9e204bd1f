"""What a demo needs on one machine: a broker, topics, and programs that run until it is over."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient, NewTopic
from programs import OTTLA, Programs, cleanup

from ottla.testing import BrokerProcess, free_ports

LOOK_S = 0.5
# A demo is over before the second of Java's compilers pays: without it, Spark works in half the time.
QUICK_JAVA = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}


class News:
    """What `ottla run` says of itself, on the terminal, and how long it took."""

    SAID = b"ottla run: "

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._read: dict[Path, int] = {}

    def tell(self, log: Path) -> None:
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the rest of it comes
                self._read[log] = self._read.get(log, 0) + len(line)
                if line.startswith(self.SAID):
                    said = str(line.removeprefix(self.SAID), "utf-8", "replace").strip()
                    print(f"{time.monotonic() - self._begun:4.0f} s  {said}", flush=True)


class Stage:
    """`with Stage({"topic": 2}, here) as stage: stage.run("agent.py", …)`"""

    def __init__(self, topics: Mapping[str, int], here: Path) -> None:
        self._topics = topics
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-demo-")
        self.directory = Path(self._directory.name)
        self._broker = BrokerProcess(log_level="warning", survives_ctrl_c=True)
        self._programs = Programs(here, self.directory, QUICK_JAVA | os.environ)
        self._news = News()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def __enter__(self) -> Stage:
        with ExitStack() as entering:
            stack = entering.enter_context(cleanup())
            stack.callback(self._directory.cleanup)
            stack.callback(self._broker.close)
            stack.callback(self._programs.close)
            self._broker.start()
            self._create_topics()
            print(f"what programs say is in {self.directory}/*.log", flush=True)
            self._entered = entering.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)

    def _create_topics(self) -> None:
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "enable.metrics.push": False, "log_level": 4}
        )
        if topics := [NewTopic(*topic) for topic in self._topics.items()]:  # the client takes no empty list
            for made in admin.create_topics(topics).values():
                made.result(30)

    def free_port(self) -> int:
        [port] = free_ports("127.0.0.1", 1)
        return port

    def run(self, program: str, *arguments: str) -> str:
        """A program of the example, connected to the broker; what it prints goes to a file. Gives the name
        under which it runs."""
        return self._start(program, [sys.executable, program, *arguments])

    def run_pipeline(self, program: str, *arguments: str) -> str:
        return self.run_ottla("run", program, "--state-dir", str(self.directory / "state"), *arguments)

    def run_ottla(self, command: str, *arguments: str) -> str:
        return self._start(command, [*OTTLA, command, *arguments])

    def kill(self, name: str) -> None:
        self._programs.kill(name)

    def _start(self, program: str, command: Sequence[str]) -> str:
        name = next(each for each in _numbered(program) if each not in self._programs.names)
        self._programs.start(name, [*command, "--bootstrap-server", self.bootstrap_servers])
        return name

    def stay(self) -> None:
        """Until Ctrl-C, or until a program ends by itself."""
        try:
            while True:
                self.look()
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            print("ending …", flush=True)

    def look(self) -> None:
        """Tells how far pipelines are with their start, and raises what has ended by itself."""
        for log in self.directory.glob("run*.log"):
            self._news.tell(log)
        self.raise_dead()

    def raise_dead(self) -> None:
        self._programs.raise_dead()


def _numbered(program: str) -> Iterator[str]:
    yield program
    yield from (f"{program}-{number}" for number in itertools.count(2))
