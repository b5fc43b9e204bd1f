"""The examples without Spark while their processes are killed: the queue, the ledger, the key-value store."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.examples.test_log_examples import EXAMPLES, load_example
from tests.spark.processes import wait_until

from ottla.testing import BrokerProcess

sys.path.insert(0, str(EXAMPLES))

messaging = load_example("messaging/demo.py")
keyvalue = load_example("keyvalue/demo.py")
ledger = load_example("ledger/ledger.py")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

JOBS = 5000
LEDGER_KILLS = 15
CLIENTS = 4
NODE_KILLS = 12


def test_every_job_ends_though_workers_are_killed_all_the_time() -> None:
    dice = random.Random(1)
    with messaging.Stage(messaging.TOPICS, messaging.HERE) as stage:
        submit = [sys.executable, "submit.py", "--many", str(JOBS)]
        subprocess.run(
            [*submit, "--bootstrap-server", stage.bootstrap_servers], cwd=messaging.HERE, check=True
        )
        workers = {name: stage.run("worker.py", "--name", name) for name in messaging.WORKERS}
        board = messaging.Board(stage.bootstrap_servers)
        killed, deadline = 0, time.monotonic() + 600
        while len(board.ended) < JOBS:
            assert time.monotonic() < deadline, str(board)
            board.look(dice.uniform(1, 3))
            victim = dice.choice(messaging.WORKERS)
            stage.kill(workers[victim])
            workers[victim] = stage.run("worker.py", "--name", victim)
            killed += 1
        board.close()
    assert killed > 5
    assert board.done.total() + board.dead.total() == JOBS


TRANSFERS = """
import random, sys
from ledger import Ledger, Refused

chance = random.Random(int(sys.argv[2]))
with Ledger(sys.argv[1], snapshot_every=20) as ledger:
    while True:
        source, target = chance.sample(["ann", "bob", "cleo", "dan"], 2)
        try:
            ledger.transfer(source, target, chance.randrange(1, 5000))
        except Refused:
            continue
        print("done", flush=True)
"""


def test_no_cent_is_made_or_lost_though_ledgers_are_killed(tmp_path: Path) -> None:
    dice = random.Random(1)
    acknowledged = tmp_path / "acknowledged"
    with BrokerProcess(log_level="warning") as broker:
        servers = broker.bootstrap_servers
        with ledger.Ledger(servers) as first:
            for name in ("ann", "bob", "cleo", "dan"):
                first.deposit(name, 100_00)
        for life in range(LEDGER_KILLS):
            before = acknowledged.read_bytes().count(b"\n") if acknowledged.exists() else 0
            with acknowledged.open("ab") as out:
                running = subprocess.Popen(
                    [sys.executable, "-c", TRANSFERS, servers, str(life)],
                    cwd=EXAMPLES / "ledger",
                    stdout=out,
                )
            try:
                wait_until(
                    lambda: acknowledged.read_bytes().count(b"\n") > before + 20,  # noqa: B023
                    60,
                    "transfers of a ledger that goes on where another was killed",
                )
                time.sleep(dice.uniform(0, 0.5))
            finally:
                running.kill()
                running.wait()
        with ledger.Ledger(servers) as last:
            balances = dict(last.balances)
        events = [event for name in balances for event in ledger.history(servers, name)]
    replayed = dict.fromkeys(balances, 0)
    for event in events:
        replayed[event.account] += -event.cents if event.kind == "withdrawn" else event.cents
    transfers = sum(event.kind == "withdrawn" for event in events)
    told = acknowledged.read_bytes().count(b"\n")
    assert balances == replayed
    assert sum(balances.values()) == 4 * 100_00
    assert min(balances.values()) >= 0
    assert told <= transfers <= told + LEDGER_KILLS


class Counting(threading.Thread):
    """Adds one, again and again, at any node, on condition that nobody was first."""

    def __init__(self, urls: list[str], seed: int, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.added = self.unknown = 0
        self._urls, self._dice, self._is_over = urls, random.Random(seed), is_over

    def run(self) -> None:
        while not self._is_over.is_set():
            url = f"{self._dice.choice(self._urls)}/keys/counter"
            try:
                status, found = keyvalue.ask(url)
            except OSError:
                continue
            value, version = (found["value"], found["version"]) if status == 200 else (0, 0)
            try:
                status, _ = keyvalue.ask(url, "PUT", {"value": value + 1, "version": version})
            except OSError:
                self.unknown += 1
                continue
            self.added += status == 200
            self.unknown += status == 503


def test_nodes_agree_on_what_was_written_though_they_are_killed() -> None:
    dice, is_over = random.Random(1), threading.Event()
    with keyvalue.Stage({}, keyvalue.HERE) as stage, ExitStack() as cleanup:
        ports = [str(stage.free_port()) for _ in range(3)]
        urls = [f"http://localhost:{port}" for port in ports]
        nodes = [stage.run("node.py", "--port", port) for port in ports]
        for url in urls:
            keyvalue.wait_served(stage, url)
        clients = [Counting(urls, seed, is_over) for seed in range(CLIENTS)]
        cleanup.callback(is_over.set)
        for client in clients:
            client.start()
        for _ in range(NODE_KILLS):
            added = sum(client.added for client in clients)
            wait_until(lambda: sum(client.added for client in clients) > added + 20, 60, "more")  # noqa: B023
            number = dice.randrange(3)
            stage.kill(nodes[number])
            nodes[number] = stage.run("node.py", "--port", ports[number])
            keyvalue.wait_served(stage, urls[number])
        is_over.set()
        for client in clients:
            client.join(60)
        added, unknown = (sum(getattr(client, name) for client in clients) for name in ("added", "unknown"))

        def state(url: str) -> Any:
            return keyvalue.ask(f"{url}/keys/counter"), keyvalue.ask(f"{url}/status")

        wait_until(lambda: state(urls[0]) == state(urls[1]) == state(urls[2]), 60, "nodes that agree")
        (_, counter), _ = state(urls[0])
    assert added <= counter["value"] <= added + unknown
