"""Brokers are killed, paused and started again under a workload, and how long nobody can write meanwhile."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient
from tests.integration.cluster.workload import PARTITIONS, WAIT_S, WRITTEN, Client, Workload

from ottla.testing import BrokerCluster, ClusterBroker

PAUSE_S = 4.0
"""Longer than the session of a broker."""
BETWEEN_S = 1.0


class Faults:
    """One after the other, with all brokers up again and in sync before the next."""

    def __init__(self, cluster: BrokerCluster, seed: str) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.kinds: dict[str, Callable[[], None]] = {
            "kill the leader": lambda: self._kill(self._leader()),
            "kill the controller": lambda: self._kill(self._cluster.controller()),
            "kill any": lambda: self._kill(self._any()),
            "kill two in turn": self._kill_two_in_turn,
            "kill two at once": self._kill_two_at_once,
            "pause the leader": lambda: self._pause(self._leader()),
            "pause the controller": lambda: self._pause(self._cluster.controller()),
            "pause any": lambda: self._pause(self._any()),
            "rolling restart": self._rolling_restart,
        }

    def _leader(self) -> ClusterBroker:
        return self._cluster.leader(WRITTEN, self._random.randrange(PARTITIONS))

    def _any(self) -> ClusterBroker:
        return self._random.choice(list(self._cluster.brokers.values()))

    def _two(self) -> list[ClusterBroker]:
        return self._random.sample(list(self._cluster.brokers.values()), 2)

    def _kill(self, broker: ClusterBroker) -> None:
        broker.kill9()
        time.sleep(self._random.uniform(0, 3))
        broker.start()

    def _kill_two_in_turn(self) -> None:
        """The second as soon as the first is back in sync, or even before."""
        first, second = self._two()
        self._kill(first)
        if self._random.random() < 0.5:
            wait_in_sync(self._cluster.bootstrap_servers)
        self._kill(second)

    def _kill_two_at_once(self) -> None:
        """Nobody can write until one of them is back; nothing may be lost all the same."""
        killed = self._two()
        for broker in killed:
            broker.kill9()
        time.sleep(self._random.uniform(0, 3))
        for broker in killed:
            broker.launch()
        for broker in killed:
            broker.wait_ready()

    def _pause(self, broker: ClusterBroker) -> None:
        broker.pause()
        time.sleep(PAUSE_S)
        broker.resume()

    def _rolling_restart(self) -> None:
        for broker in self._cluster.brokers.values():
            assert broker.stop(60) == 0, f"broker {broker.id} did not stop cleanly"
            broker.start()
            wait_in_sync(self._cluster.bootstrap_servers)

    def inject(self, kind: str) -> None:
        self.kinds[kind]()
        wait_in_sync(self._cluster.bootstrap_servers)
        time.sleep(BETWEEN_S)

    def chosen(self, count: int) -> list[str]:
        """Each kind about as often, in an order of its own."""
        kinds = sorted(self.kinds)
        chosen = [kinds[number % len(kinds)] for number in range(count)]
        self._random.shuffle(chosen)
        return chosen


def wait_in_sync(servers: str) -> None:
    """Until every partition has all of its replicas in sync, as all brokers say."""
    admins = [AdminClient({"bootstrap.servers": server, "log_level": 0}) for server in servers.split(",")]
    deadline = time.monotonic() + WAIT_S
    while lagging := [each for admin in admins for each in _lagging(admin)]:
        assert time.monotonic() < deadline, f"not in sync after {WAIT_S:g} s: {lagging}"
        time.sleep(0.1)


def _lagging(admin: AdminClient) -> list[str]:
    return [
        f"{name}-{number}: {partition.isrs} of {partition.replicas}"
        for name, topic in admin.list_topics(timeout=WAIT_S).topics.items()
        for number, partition in topic.partitions.items()
        if len(partition.isrs) < len(partition.replicas)
    ]


@contextmanager
def keeping_logs(cluster: BrokerCluster, directory: Path) -> Iterator[None]:
    """What the brokers said is there afterwards, to find out what went wrong."""
    try:
        yield
    finally:
        for broker in cluster.brokers.values():
            (directory / f"broker-{broker.id}.log").write_text(broker.log)


class Besides(Protocol):
    """Something else that writes at the same time."""

    def start(self) -> None: ...

    def check_alive(self) -> None: ...

    def finish(self) -> str: ...

    def stop(self) -> None: ...


class Gaps:
    """Seconds without an acknowledgement by kind of fault."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, kind: str, who: str, clients: Sequence[Client], since: float) -> float:
        longest = max(client.longest_gap(since) for client in clients)
        self._of[kind][who].append(longest)
        return longest

    def __str__(self) -> str:
        lines = [f"{'longest gap in s':24}{'times':>6}{'records':>18}{'transactions':>18}"]
        for kind, measured in sorted(self._of.items()):
            columns = "".join(
                f"{statistics.median(measured[who]):9.2f} –{max(measured[who]):6.2f}"
                for who in ("records", "transactions")
            )
            lines.append(f"{kind:24}{len(measured['records']):6}{columns}")
        return "\n".join((*lines, "(median – worst)"))


def run_faults(
    cluster: BrokerCluster,
    kinds: Sequence[str] | int,
    seed: str = "1",
    besides: Besides | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """AssertionError for what must not be. So many of each kind, if it is a number."""
    workload = Workload(cluster.bootstrap_servers)
    faults = Faults(cluster, seed)
    gaps = Gaps()
    workload.start()
    try:
        if besides is not None:
            besides.start()
        workload.wait_begun()
        wait_in_sync(cluster.bootstrap_servers)
        for number, kind in enumerate(faults.chosen(kinds) if isinstance(kinds, int) else kinds, 1):
            began = time.monotonic()
            faults.inject(kind)
            workload.wait_going_on()
            workload.check_alive()
            if besides is not None:
                besides.check_alive()
            records = gaps.add(kind, "records", workload.writers, began)
            transactions = gaps.add(kind, "transactions", workload.transactors, began)
            took = time.monotonic() - began
            say(f"{number}: {kind}, {took:.1f} s: records {records:.2f} s, transactions {transactions:.2f} s")
        say(workload.finish())
        if besides is not None:
            say(besides.finish())
        say(str(gaps))
    finally:
        workload.stop()
        if besides is not None:
            besides.stop()
