"""A streams application on a Spark cluster goes on, exactly once, while executors and workers are lost and
others come.

OTTLA_SOAK_EXECUTORS=12 make soak PYTEST_ARGS=tests/soak/test_executors_come_and_go.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from bench.process import command_line, process_tree
from bench.spark_cluster import SparkCluster, executors_of, spark_cluster
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

# Each is one executor or worker that is lost.
LOSSES = int(os.environ.get("OTTLA_SOAK_EXECUTORS", "6"))
PROGRAM = Path(__file__).with_name("programs") / "chains.py"
PARTITIONS = 4
KEYS = 50
PER_SECOND = 200
WAIT_S = 300

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(3600)]


class Feeder(threading.Thread):
    """Numbers of keys in turn, until told to stop."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
        self._is_stopped = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._is_stopped.wait(1 / PER_SECOND):
            self._producer.produce("numbers", str(self.count), f"key-{self.count % KEYS}")
            self._producer.poll(0)
            self.count += 1

    def stop(self) -> int:
        self._is_stopped.set()
        self.join()
        assert self._producer.flush(60) == 0
        return self.count


class Results:
    """All that is committed in the topics written."""

    TOPICS = ("loud", "digits-out", "chains-out")

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "results",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(list(self.TOPICS))
        self.loud: Counter[str] = Counter()
        self.digits: dict[str, int] = {}
        self.chains: dict[str, list[str]] = defaultdict(list)

    def read(self) -> None:
        while messages := self._consumer.consume(5000, 0.5):
            for message in messages:
                assert message.error() is None, message.error()
                match message.topic():
                    case "loud":
                        self.loud[message.value().decode()] += 1
                    case "digits-out":
                        self.digits[message.key().decode()] = int.from_bytes(message.value())
                    case "chains-out":
                        self.chains[message.key().decode()].append(message.value().decode())

    @property
    def least(self) -> int:
        """How many numbers have come through all three queries."""
        chained = sum(map(len, self.chains.values()))
        return min(self.loud.total(), sum(self.digits.values()), chained)

    def close(self) -> None:
        self._consumer.close()


def chains(count: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in range(min(KEYS, count)):
        checksum, steps = 0, []
        for step, number in enumerate(range(key, count, KEYS), 1):
            checksum = crc32(str(number).encode(), checksum)
            steps.append(f"{step}:{checksum}")
        found[f"key-{key}"] = steps
    return found


@contextmanager
def application(servers: str, master: str, work_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "ottla.cli.main", "run", str(PROGRAM), "--bootstrap-server", servers]
    argv += ["--master", master, "--state-dir", str(work_dir / "state")]
    with (work_dir / "application.log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                below = process_tree(process.pid)[1:]
                process.kill()
                process.wait()
                for pid in below:
                    if command_line(pid):
                        os.kill(pid, 9)


def works(worker: subprocess.Popen[bytes]) -> bool:
    """Whether an executor of it has run Python."""
    return any(
        "pyspark" in command_line(below) for pid in executors_of(worker) for below in process_tree(pid)[1:]
    )


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()

    def say(text: str) -> None:
        with capfd.disabled():
            print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    with (
        BrokerProcess(log_level="warning") as broker,
        spark_cluster(tmp_path, 2) as cluster,
    ):
        servers = broker.bootstrap_servers
        wanted = [NewTopic(name, PARTITIONS, 1) for name in ("numbers", *Results.TOPICS)]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(wanted).values():
            created.result(30)
        results, feeder = Results(servers), Feeder(servers)
        with application(servers, cluster.master, tmp_path) as running:

            def wait(condition: Callable[[], bool], what: str) -> None:
                deadline = time.monotonic() + WAIT_S
                while not condition():
                    log = (tmp_path / "application.log").read_text()[-3000:]
                    assert running.poll() is None, f"the application has ended:\n{log}"
                    assert time.monotonic() < deadline, f"{what} after {WAIT_S} s:\n{log}"
                    results.read()

            feeder.start()
            wait(lambda: results.least > 0, "nothing has come through")
            for number in range(LOSSES):
                change(cluster, number, wait, say)
                # What goes in from here on has to come through the executors there are now.
                mark = feeder.count
                wait(lambda mark=mark: results.least > mark, "no progress")  # type: ignore[misc]
                say(f"{results.least} of {feeder.count} numbers are through")
            count = feeder.stop()
            wait(lambda: results.least >= count, f"not all of {count} have come through")
            # Anything too many would be behind the last that is awaited.
            results.read()
        say(f"{count} numbers, {LOSSES} losses")
        results.close()
    assert results.loud == Counter(f"{number}!" for number in range(count))
    assert results.digits == {
        digit: sum(str(number)[-1] == digit for number in range(count)) for digit in "0123456789"
    }
    assert results.chains == chains(count)


def change(
    cluster: SparkCluster,
    number: int,
    wait: Callable[[Callable[[], bool], str], None],
    say: Callable[[str], None],
) -> None:
    """In turn: an executor dies, a worker is lost, one comes and then the older one is lost."""
    match number % 3:
        case 0:
            assert cluster.kill_executor()
            say("an executor was killed")
        case 1:
            cluster.lose_worker()
            say("a worker was lost with its executor")
        case _:
            added = cluster.add_worker()
            wait(lambda: works(added), "a new worker gets nothing to do")
            cluster.lose_worker()
            say("a worker came, and works, and the older one was lost")
            added = cluster.add_worker()
            wait(lambda: works(added), "a new worker gets nothing to do")
