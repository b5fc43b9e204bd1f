"""A console as a program sees it, and what is in the cluster behind it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS = 300
# What a coordinator, or whoever is to become one, says until it is there.
_COMING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass
class Site:
    """A console as a program sees it, with the cookie and the token of a page."""

    address: str
    cluster: str = "local"
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {**self.headers, **headers})
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text, dict(answer.headers.items())
        finally:
            connection.close()

    def log_in(self) -> Site:
        _, found, headers = self.ask("GET", "/api/token")
        self.headers = {
            "Cookie": headers["set-cookie"].partition(";")[0],
            "X-CSRF-Token": found["token"],
            "Content-Type": "application/json",
        }
        return self

    def get(self, *segments: str, **query: Any) -> Any:
        status, found, _ = self.ask("GET", f"{self.path(*segments)}?{urlencode(query)}")
        assert status == 200, found
        return found

    def change(self, method: str, *segments: str, **body: Any) -> Any:
        status, found, _ = self.ask(method, self.path(*segments), body)
        assert status == 200, found
        return found

    def refused(self, method: str, *segments: str, **body: Any) -> tuple[int, str]:
        status, found, _ = self.ask(method, self.path(*segments), body)
        assert status >= 400
        return status, found["error"]

    def page(self, *segments: str, **query: Any) -> str:
        status, text, _ = self.ask("GET", f"{self.page_path(*segments)}?{urlencode(query)}")
        assert status == 200, text
        return str(text)

    def path(self, *segments: str) -> str:
        return "/".join(("/api/clusters", self.cluster, *(quote(each, safe="") for each in segments)))

    def page_path(self, *segments: str) -> str:
        return "/".join(("/c", self.cluster, *(quote(each, safe="") for each in segments)))


def create(bootstrap: str, topics: dict[str, int], replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A client that is asked at once has been seen to wait in vain for who administers.
    admin.list_topics(timeout=60)
    wanted = [NewTopic(name, count, replicas) for name, count in topics.items()]
    for made in admin.create_topics(wanted).values():
        made.result(60)


def fill(bootstrap: str, replicas: int = 1) -> None:
    """Orders of some customers, and a group that has read one of each partition."""
    create(bootstrap, {"orders": 3, "payments": 1}, replicas)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS):
        value = json.dumps({"order": number, "total": number * 10, "items": [{"sku": f"s{number}"}]})
        producer.produce("orders", value, f"customer-{number % 7}", headers={"source": f"shop-{number % 2}"})
    assert producer.flush(60) == 0
    commit(bootstrap, "billing", "orders", 3)


def commit(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Offset 1 in each partition. The first group of a cluster has to wait for its coordinator."""
    offsets = [TopicPartition(topic, number, 1) for number in range(partitions)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    until = time.monotonic() + 60
    try:
        while True:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in _COMING:
                    raise
                assert time.monotonic() < until, error
    finally:
        consumer.close()
