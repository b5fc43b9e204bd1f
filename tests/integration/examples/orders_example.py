"""The example's modules as its own programs see them, and what has to hold in the end."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

HERE = Path(__file__).resolve().parents[3] / "examples/orders"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


def read_committed(
    bootstrap_servers: str, topic: str, decode: Callable[[bytes], Any] = json.loads
) -> list[tuple[str, Any]]:
    """All of a topic: keys, and values as JSON or whatever they are."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reckoning",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, unread = [], set(partitions)
    while unread:
        message = consumer.poll(30)
        assert message is not None, f"{topic} cannot be read to its end"
        if message.error() is not None:
            unread.discard(message.partition())
        else:
            found.append((message.key().decode(), decode(message.value())))
    consumer.close()
    return found


def reckon(bootstrap_servers: str, posted: Iterable[str], shop: Any) -> Counter[str]:
    """What each order must have come to; the number of orders by their state, and of what came twice."""
    ids = set(posted)
    final: dict[str, list[str]] = {number: [] for number in ids}
    latest: dict[str, Any] = {}
    created: Counter[str] = Counter()
    for number, order in read_committed(bootstrap_servers, "orders"):
        latest[number] = order
        if order["state"] == "CREATED":
            created[number] += 1
        else:
            final[number].append(order["state"])
    assert {number: states for number, states in final.items() if len(states) != 1} == {}
    charged = Counter(number for number, _ in read_committed(bootstrap_servers, "payments"))
    validated = {number for number, states in final.items() if states == ["VALIDATED"]}
    assert charged == Counter(validated)
    with closing(sqlite3.connect(shop.directory / "search.db")) as index:
        found = index.execute("SELECT id, source FROM documents").fetchall()
    assert {number: json.loads(source) for number, source in found} == latest
    written = Counter(json.loads(line)["id"] for line in shop.mails.read_text().splitlines())
    assert set(written) == {f"<order-{number}@shop.example>" for number in ids}
    result = Counter(states[0] for states in final.values())
    result["orders taken again"] = created.total() - len(ids)
    result["mails sent again"] = sum(count - 1 for count in written.values())
    return result


class Customers(threading.Thread):
    """Post so many orders, at any of the services that answers."""

    def __init__(self, services: list[str], count: int, per_second: float) -> None:
        super().__init__(daemon=True)
        self.posted: list[str] = []
        self._services, self._count, self._per_second = services, count, per_second
        self.failure: BaseException | None = None

    def run(self) -> None:
        import customers

        due = time.monotonic()
        try:
            for number, order in enumerate(customers.invented(1, self._count)):
                customers.post(self._services, order, number)
                self.posted.append(order["id"])
                due += 1 / self._per_second
                time.sleep(max(0.0, due - time.monotonic()))
        except BaseException as error:
            self.failure = error


def wait_settled(shop: Any, bootstrap_servers: str, count: int, timeout_s: float) -> None:
    """Until every order has its mail and its document, whatever else there may be."""
    url = f"http://localhost:{shop.ports['search']}/orders/_search?q="
    deadline = time.monotonic() + timeout_s
    while True:
        shop.raise_dead()
        mails = shop.mails.read_text().splitlines() if shop.mails.exists() else []
        written = len({json.loads(line)["id"] for line in mails})
        documents = 0
        for state in ("VALIDATED", "FAILED"):
            with urllib.request.urlopen(url + state, timeout=10) as answer:
                documents += json.load(answer)["hits"]["total"]["value"]
        if written >= count and documents >= count:
            return
        assert time.monotonic() < deadline, f"{written} mails and {documents} documents of {count} orders"
        time.sleep(0.5)
