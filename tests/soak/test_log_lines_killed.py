"""The log example while its agents, its pipeline and its index are killed: each line is found, once.

OTTLA_KILL_SEED=7 make soak PYTEST_ARGS=tests/soak/test_log_lines_killed.py
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.examples.logs_example import index, pipeline
from tests.integration.examples.orders_example import read_committed
from tests.integration.examples.test_log_examples import load_example
from tests.spark.processes import wait_until

demo = load_example("logs/demo.py")

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(1800)]

HOSTS = 3
KILLS = 15
AWAY_S_MAX = 3.0
BETWEEN_S_MAX = 8.0
MINUTE_MS = 60_000


def test_each_line_is_found_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seed = os.environ.get("OTTLA_KILL_SEED") or str(time.time_ns() % 1_000_000)
    print(f"OTTLA_KILL_SEED={seed}")
    dice = random.Random(seed)
    hosts = tmp_path / "hosts"

    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    with demo.Stage(demo.TOPICS, demo.HERE) as stage:
        servers = stage.bootstrap_servers
        # Rotated, but nothing is deleted: the files say at the end what there was.
        writing = stage.run(
            "hosts.py", "--directory", str(hosts), "--hosts", str(HOSTS), "--rotate", "1000000"
        )
        logs = demo.Logs(stage, hosts)
        wait_until(lambda: logs.found() > 0, 240, "the first lines in the index")
        names = ["pipeline", "index", *(f"agent of host-{number}" for number in range(HOSTS))]
        victims = [*names, *dice.choices(names, k=KILLS - len(names))]
        dice.shuffle(victims)
        for number, victim in enumerate(victims, 1):
            logs.kill(victim)
            time.sleep(dice.uniform(0, AWAY_S_MAX))
            logs.start(victim)
            say(f"{number} killed, the last of them the {victim}; {logs.found()} lines found")
            time.sleep(dice.uniform(0, BETWEEN_S_MAX))
        stage.kill(writing)
        written = Counter(
            (host.name, line)
            for host in hosts.glob("host-*")
            for file in host.iterdir()
            for line in file.read_bytes().split(b"\n")[:-1]
        )
        count = written.total()
        # Until an agent that was killed is started again, readers wait for what it had begun.
        wait_until(lambda: logs.found() >= count, 240, f"{count} lines in the index")
        expected = rates_of(read_committed(servers, "log-entries"))
        wait_until(lambda: counted(servers) == expected, 240, "all lines in the rates")
        stage.raise_dead()
        lines = read_committed(servers, "log-lines", bytes)
        dead = read_committed(servers, "log-dead", bytes)
        entries = len(read_committed(servers, "log-entries"))
        with closing(index.Index(str(stage.directory / "logs.db"))) as searched:
            found, _ = searched.search("")
    assert Counter(lines) == written
    assert entries + len(dead) == count
    assert found == count
    say(f"{count} lines, {len(dead)} of them not understood, {KILLS} kills")


def rates_of(entries: list[tuple[str, dict[str, object]]]) -> Counter[tuple[str, int]]:
    return Counter((entry["service"], entry["at_ms"] // MINUTE_MS * MINUTE_MS) for _, entry in entries)  # type: ignore[misc, operator]


def counted(servers: str) -> Counter[tuple[str, int]]:
    rows = dict(read_committed(servers, pipeline.RATES)).values()
    return Counter({(row["service"], row["from_ms"]): row["lines"] for row in rows})
