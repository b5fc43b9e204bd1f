"""The lake sink under kills: worker and Java end twenty times, and every record is in exactly one file."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
from pyarrow.dataset import dataset

from ottla.testing import InProcessBroker

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(2400)]
KILLS = 20
ROWS_PER_SECOND = 500
START_S = 300.0


class WorkerProcess:
    """`ottla connect` as users run it, in a process group of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        overrides = {
            "listeners": "http://127.0.0.1:0",
            "ottla.spark.checkpoint.dir": str(directory / "checkpoints"),
            "ottla.spark.master": "local[2]",
            "group.id": "lake-kills",
            "key.converter": "StringConverter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        argv = [sys.executable, "-m", "ottla.cli.main", "connect", "--bootstrap-server", bootstrap]
        for name, value in overrides.items():
            argv += ["--override", f"{name}={value}"]
        with (directory / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.address = line.removeprefix("Ready: http://").partition(",")[0]
        assert self.address, "the worker did not start"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        asked = urllib.request.Request(
            f"http://{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def task(self) -> dict[str, Any]:
        known = self.ask("GET", "/connectors?expand=status")
        tasks = known["lake"]["status"]["tasks"] if "lake" in known else []
        return dict(tasks[0]) if tasks else {"state": None}

    def java(self) -> int | None:
        """The process of Spark's Java, if there is one."""
        shown = subprocess.run(
            ["ps", "-o", "pid=,comm=", "-g", str(os.getpgid(self._process.pid))],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = [int(line.split()[0]) for line in shown.splitlines() if line.split()[1] == "java"]
        return found[0] if found else None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(self._process.pid), signal.SIGKILL)
        self._process.wait(60)


class Rows(threading.Thread):
    """Numbers into a topic of three partitions, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._is_over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._is_over.wait(0.1):
            for _ in range(ROWS_PER_SECOND // 10):
                row = {"n": self.count, "kind": f"k{self.count % 3}"}
                self._producer.produce("numbers", json.dumps(row).encode(), key=str(self.count).encode())
                self.count += 1
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def finish(self) -> int:
        self._is_over.set()
        self.join(120)
        return self.count


def test_every_record_is_in_exactly_one_file_over_twenty_kills(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(17)
    out = tmp_path / "out"

    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    def found() -> list[int]:
        if not any(out.glob("kind=*/*.parquet")):
            return []
        # What is hidden is left out, as Spark does.
        table = dataset(out, format="parquet", partitioning="hive").to_table(columns=["n"])
        return [int(n) for n in table.column("n").to_pylist()]

    with InProcessBroker({"num.partitions": "3"}) as broker, ExitStack() as stack:
        rows = Rows(broker.bootstrap_servers)
        rows.start()
        worker = WorkerProcess(broker.bootstrap_servers, tmp_path)
        config = {
            "connector.class": "lake",
            "topics": "numbers",
            "path": str(out),
            "value.schema": "n bigint, kind string",
            "partition.fields": "kind",
            "flush.interval.ms": "0",
        }
        stack.callback(lambda: worker.kill())  # noqa: PLW0108 - of the last one, not of this one
        worker.ask("PUT", "/connectors/lake/config", config)
        for kill in range(KILLS):
            before = len(found())
            deadline = time.monotonic() + START_S
            while len(found()) == before:
                assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()[-3000:]
                if worker.task()["state"] == "FAILED":
                    # Java's end fails the task, and the worker starts another one for it.
                    worker.ask("POST", "/connectors/lake/restart?includeTasks=true&onlyFailed=true")
                time.sleep(0.3)
            time.sleep(rng.uniform(0, 1.5))
            java = worker.java()
            if kill % 4 == 3 and java is not None:
                os.kill(java, signal.SIGKILL)
                say(f"kill {kill + 1}: Java, {len(found())} rows are visible")
                continue
            worker.kill()
            say(f"kill {kill + 1}: the worker, {len(found())} rows are visible")
            assert max(Counter(found()).values()) == 1
            worker = WorkerProcess(broker.bootstrap_servers, tmp_path)
        count = rows.finish()
        deadline = time.monotonic() + START_S
        while len(found()) < count and time.monotonic() < deadline:
            if worker.task()["state"] == "FAILED":
                worker.ask("POST", "/connectors/lake/restart?includeTasks=true&onlyFailed=true")
            time.sleep(0.5)
        worker.kill()
    assert sorted(found()) == list(range(count))
    say(f"{count} rows, each in one of {len(list(out.rglob('*.parquet')))} files, over {KILLS} kills")
