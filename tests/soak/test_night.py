"""A night for the node: mixed load, administration and attacks at the same time, as long as one likes.

    OTTLA_SOAK_MINUTES=30 make soak PYTEST_ARGS=tests/soak

At the end the node is up, and is the process that was started last on purpose; its memory is what it was;
nothing that was acknowledged is lost, nothing is there twice that must not be, nothing aborted can be read.
OTTLA_SOAK_WITHOUT=full_disk,noise leaves attacks out (their names are the methods of `attacks.Attacker`).

    load.py     producers and the group     chaos.py    administration
    attacks.py  clients that mean no good   node.py     the broker process, its disk and its memory
    ledger.py   what was acknowledged       checker.py  whether it is there
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.soak.attacks import POISONED, Attacker
from tests.soak.chaos import Administration
from tests.soak.checker import check, unconsumed
from tests.soak.ledger import Ledger
from tests.soak.load import COMMITTED, COMPACTED, IDEMPOTENT, PARTITIONS, PLAIN, TOPICS, Worker, workers
from tests.soak.node import MIB, SAMPLE_S, Node, small_disk

MINUTES = float(os.environ.get("OTTLA_SOAK_MINUTES", "30"))
WITHOUT = set(filter(None, os.environ.get("OTTLA_SOAK_WITHOUT", "").split(",")))
SEED = os.environ.get("OTTLA_SOAK_SEED", "1")
DISK_BYTES = int(512 * MIB + MINUTES * 30 * MIB)
# So much more may be kept between attacks in the last third of a process's life than in the first: there are
# more segments, producers and aborted transactions to know of. In half an hour 35 KiB a second are seen.
GROWTH_MIB_MAX = 32
QUIET_S = 120

pytestmark = [pytest.mark.soak, pytest.mark.timeout(int(MINUTES * 60) + 900)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    path = tmp_path / "disk"
    with small_disk(path, DISK_BYTES) as mounted:
        yield path, mounted


@pytest.fixture
def node(disk: tuple[Path, bool]) -> Iterator[Node]:
    broker = Node(disk[0] / "data")
    try:
        yield broker
    finally:
        broker.close()


def test_a_night_for_the_node(node: Node, disk: tuple[Path, bool]) -> None:
    path, mounted = disk
    ledger = Ledger()
    create_topics(node.servers)
    producing, consuming = threading.Event(), threading.Event()
    load = workers(node.servers, ledger, producing, consuming)
    administration = Administration(node.servers, ledger, producing, f"chaos/{SEED}")
    attacker = Attacker(node.servers, producing, f"attacks/{SEED}", path if mounted else None, WITHOUT)
    everybody: list[Worker] = [*load, administration, attacker]
    for worker in everybody:
        worker.start()
    try:
        # Started again early, once in peace and once not: what grows has the rest of the night to do so.
        live(node, everybody, MINUTES * 60 * 0.1)
        assert node.stop() == 0, tail(node)
        node.start()
        live(node, everybody, MINUTES * 60 * 0.1)
        node.kill()
        node.start()
        live(node, everybody, MINUTES * 60 * 0.8)
        producing.set()
        for worker in everybody:
            if worker.stopping is producing:
                worker.join(QUIET_S)
        wait_until_consumed(node, ledger, everybody)
    finally:
        producing.set()
        consuming.set()
        for worker in everybody:
            worker.join(QUIET_S)
    report(node, ledger, administration, attacker, everybody)
    assert node.is_running, f"the node is down:\n{tail(node)}"
    for worker in everybody:
        assert worker.failure is None, f"{worker.name}: {worker.failure!r}"
        assert not worker.is_alive(), f"{worker.name} came to no end"
    then, now = node.memory_then_and_now()
    assert now < then + GROWTH_MIB_MAX, f"memory grew from {then:.0f} to {now:.0f} MiB"
    # What is acknowledged outlives the process.
    assert node.stop() == 0, tail(node)
    node.start()
    assert check(node.servers, ledger) == []


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [
        NewTopic(topic, PARTITIONS, 1, config={"cleanup.policy": "compact"} if topic == COMPACTED else {})
        for topic in TOPICS
    ]
    # What is poisoned is not kept for long.
    limits = {"retention.bytes": str(4 * MIB), "segment.bytes": str(MIB)}
    for future in admin.create_topics([*topics, NewTopic(POISONED, 1, 1, config=limits)]).values():
        future.result(30)


def live(node: Node, everybody: list[Worker], seconds: float) -> None:
    """So long, with an eye on the process and on those who use it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert node.is_running, f"the node is down:\n{tail(node)}"
        node.sample_memory()
        for worker in everybody:
            assert worker.failure is None, f"{worker.name}: {worker.failure!r}\n{tail(node)}"
        time.sleep(SAMPLE_S)


def wait_until_consumed(node: Node, ledger: Ledger, everybody: list[Worker]) -> None:
    """The group gets to see all that was acknowledged."""
    deadline = time.monotonic() + QUIET_S
    while left := unconsumed(ledger, (PLAIN, IDEMPOTENT, COMMITTED)):
        assert time.monotonic() < deadline, f"the group has not seen {left} of {ledger.count} records"
        live(node, everybody, SAMPLE_S)


def report(
    node: Node, ledger: Ledger, administration: Administration, attacker: Attacker, everybody: list[Worker]
) -> None:
    then, now = node.memory_then_and_now()
    print(f"\n{ledger.count} records acknowledged, {len(ledger.aborted)} aborted")
    print(f"memory between attacks: {then:.0f} MiB in the first third, {now:.0f} MiB in the last")
    print(f"administration: {administration.done}, refused: {administration.refused}")
    print(f"without an answer: {administration.unanswered}")
    print(f"attacks: {attacker.done}")
    print({name: f"answer after {seconds:.2f} s" for name, seconds in attacker.slowest_after.items()})
    print({worker.name: f"{worker.slowest_s:.1f} s at most" for worker in everybody if worker.slowest_s})


def tail(node: Node, lines: int = 40) -> str:
    return "\n".join(node.log.splitlines()[-lines:])
