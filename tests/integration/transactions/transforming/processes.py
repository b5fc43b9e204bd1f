"""Transformers as processes of their own that can be killed at any step."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from transforming.work import Work

HERE = Path(__file__).parent
STEP_TIMEOUT_S = 60.0
STEPS = ("begun", "sent", "sent", "offsets", "offsets", "committed")
TRANSACTIONS_PER_LIFE_MAX = 5
AFTER_STEP_S = 0.006
DIED = 9
JVM_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class TransformerFailed(AssertionError):
    """It ended by itself; only being killed is in order."""


class Transformer:
    """A process at work, and the steps it has reported."""

    def __init__(
        self, process_id: int, steps_fd: int, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.process_id = process_id
        self.steps: Counter[str] = Counter()
        self._fd = steps_fd
        self._process = process
        self._rest = b""

    def wait_step(self, name: str, count: int) -> None:
        """Until it has reported this one so many times."""
        while self.steps[name] < count:
            self._read()

    def _read(self) -> None:
        readable, _, _ = select.select([self._fd], [], [], STEP_TIMEOUT_S)
        if not readable:
            raise TransformerFailed(f"no step for {STEP_TIMEOUT_S} s after {dict(self.steps)}")
        data = os.read(self._fd, 1 << 16)
        if not data:
            raise TransformerFailed(f"it ended after {dict(self.steps)}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"failed"):
                raise TransformerFailed(line.decode())
            self.steps[line.decode()] += 1

    def kill(self) -> None:
        """SIGKILL; whatever it was doing stays undone."""
        os.kill(self.process_id, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        # The pipe ends when the process has.
        while os.read(self._fd, 1 << 16):
            pass
        os.close(self._fd)


class Transformers(Protocol):
    """Starts transformers, and the producers that misbehave, of one client."""

    def start(self, work: Work) -> Transformer: ...

    def misbehave(self, role: str, *arguments: str) -> str:
        """What the producer printed before it ended."""
        ...

    def close(self) -> None: ...


class PythonTransformers:
    def __init__(self, module: str) -> None:
        self._pipes = tempfile.TemporaryDirectory(prefix="transformers-")
        self._module = module
        self._count = 0
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "transforming.zygote", f"transforming.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=HERE.parent,
        )

    def start(self, work: Work) -> Transformer:
        self._count += 1
        pipe = f"{self._pipes.name}/{self._count}"
        os.mkfifo(pipe)
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps({**asdict(work), "pipe": pipe}).encode() + b"\n")
        self._zygote.stdin.flush()
        steps = os.open(pipe, os.O_RDONLY)  # waits for the transformer to open its end
        os.unlink(pipe)
        return Transformer(int(self._zygote.stdout.readline()), steps)

    def misbehave(self, role: str, *arguments: str) -> str:
        return _printed([sys.executable, "-m", "transforming.producers", self._module, role, *arguments])

    def close(self) -> None:
        self._zygote.communicate()
        self._pipes.cleanup()


class JavaTransformers:
    def __init__(self, java: str, libs: Path) -> None:
        self._java = java
        self._classes = tempfile.TemporaryDirectory(prefix="transformers-")
        self._class_path = f"{self._classes.name}:{libs}/*"
        compiler = Path(java).with_name("javac")
        sources = [str(path) for path in sorted(HERE.glob("*.java"))]
        subprocess.run([str(compiler), "-d", self._classes.name, "-cp", f"{libs}/*", *sources], check=True)

    def start(self, work: Work) -> Transformer:
        process = subprocess.Popen(
            [
                self._java,
                *JVM_FLAGS,
                "-cp",
                self._class_path,
                "Transformer",
                work.bootstrap_servers,
                work.source,
                work.target,
                work.group,
                str(work.seed),
                str(work.transaction_timeout_ms),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        return Transformer(process.pid, os.dup(process.stdout.fileno()), process)

    def misbehave(self, role: str, *arguments: str) -> str:
        return _printed(
            [self._java, *JVM_FLAGS, "-cp", self._class_path, "Producers", role, *arguments],
        )

    def close(self) -> None:
        self._classes.cleanup()


def _printed(command: list[str]) -> str:
    ended = subprocess.run(
        command, cwd=HERE.parent, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
    )
    if ended.returncode != DIED:
        raise TransformerFailed(ended.stdout + ended.stderr)
    return ended.stdout.strip()


class Killings:
    """Lives of a transformer, each ended at a random step."""

    def __init__(self, transformers: Transformers, work: Work, seed: int) -> None:
        self._transformers = transformers
        self._work = work
        self._chance = work.chance()
        self._seed = seed
        self.steps: Counter[str] = Counter()
        self.current: Transformer | None = None

    def start(self) -> Transformer:
        self._seed += 1
        work = asdict(self._work) | {"seed": self._seed}
        self.current = self._transformers.start(Work(**work))
        return self.current

    def kill_at_random(self) -> None:
        """At some moment after some step of some transaction, most often inside it."""
        current = self.current or self.start()
        current.wait_step(self._chance.choice(STEPS), self._chance.randint(1, TRANSACTIONS_PER_LIFE_MAX))
        time.sleep(self._chance.random() * AFTER_STEP_S)
        self.kill()

    def kill(self) -> None:
        if self.current is not None:
            self.steps += self.current.steps
            self.current.kill()
            self.current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
