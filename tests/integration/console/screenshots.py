"""Takes the screenshots of the guide: `make screenshots`."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.chromium import Browser, browser
from confluent_kafka import Consumer, Producer
from connect.worker_process import our_worker, settings_of
from console_site import Site, commit, create
from share_members import member_of

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.streams import Materialized, StreamsBuilder
from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.streams.serving import served
from ottla.testing import BrokerCluster, InProcessBroker

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
PAGES = {
    "overview": "",
    "broker": "/brokers/1",
    "topics": "/topics",
    "topic": "/topics/orders",
    "consumers": "/topics/orders?part=consumers",
    "settings": "/topics/orders?part=settings",
    "records": "/topics/orders/records?limit=20",
    "groups": "/groups",
    "group": "/groups/billing",
    "members": "/groups/billing",
    "transactions": "/transactions",
    "transaction": "/transactions/monthly-report",
    "balance": "/balance",
    "connectors": "/connectors",
    "connector": "/connectors/orders-to-file",
    "plugins": "/connector-plugins",
    "new-connector": f"/connector-plugins/{SINK}",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/customers",
    "acls": "/acls",
    "users": "/users",
    "quotas": "/quotas",
}
BESIDE = {"api": "/api", "login": "/login?cluster=payroll", "tokens": "/c/payroll/tokens"}
"""Pages that belong to no cluster, or need a log-in."""
TEXT = {f"{part}.converter": "org.apache.kafka.connect.storage.StringConverter" for part in ("key", "value")}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOG_INS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_alice="a-secret";',
    "delegation.token.secret.key": "a key of the guide",
}
RULES = (
    ("User:shop", "WRITE", "TOPIC", "orders"),
    ("User:billing", "READ", "TOPIC", "orders"),
    ("User:billing", "READ", "GROUP", "billing"),
    ("User:mallory", "DESCRIBE", "CLUSTER", "kafka-cluster"),
)
POINTS = 20


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as files, ExitStack() as stack:
        cluster = stack.enter_context(BrokerCluster(AUTHORIZER))
        closed = stack.enter_context(InProcessBroker({**AUTHORIZER, **LOG_INS}))
        bootstrap = cluster.bootstrap_servers
        sizes = {"orders": (6, 3), "payments": (3, 3), "clicks": (12, 2), "customers": (3, 3)}
        for name, (count, factor) in sizes.items():
            create(bootstrap, {name: count}, factor)
        commit(bootstrap, "reports", "payments", 3)
        # Of a topic that it does not read any more.
        commit(bootstrap, "billing", "customers", 3)
        worker = stack.enter_context(our_worker(settings_of(bootstrap)))
        settings = [
            ClusterSettings("local", bootstrap, connect=f"http://{worker.address}", sample_s=1.0),
            ClusterSettings(
                "payroll",
                f"127.0.0.1:{closed.ports['SASL']}",
                {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
                login=True,
            ),
        ]
        address = stack.enter_context(console_served(settings))
        window = stack.enter_context(browser())
        site = Site(address).log_in()
        _look_after(site, files)
        stack.enter_context(_pipeline(bootstrap, files))
        stack.enter_context(_readers(bootstrap))
        stack.enter_context(_open_transaction(bootstrap))
        stack.enter_context(_shopping(bootstrap))
        _wait_for_something_to_show(site)
        pages = {name: f"{address}/c/local{path}" for name, path in PAGES.items()}
        pages |= {name: address + path for name, path in BESIDE.items()}
        for name, path in pages.items():
            if name == "tokens":
                _log_in_and_make_a_token(window, address)
            for theme in ("light", "dark"):
                window.prefer(theme)
                window.open(path)
                _prepare(window, name)
                window.screenshot(directory / f"{name}-{theme}.png")


def _look_after(site: Site, files: str) -> None:
    """What whoever operates a cluster has set up."""
    for name, file in (("orders-to-file", f"{files}/orders.txt"), ("archive", "/nowhere/archive.txt")):
        config = {"connector.class": SINK, "topics": "orders", "file": file, **TEXT}
        site.change("PUT", "connectors", name, set=config)
    for principal, operation, resource, about in RULES:
        permission = "DENY" if principal == "User:mallory" else "ALLOW"
        rule = {"principal": principal, "operation": operation, "resource": resource, "name": about}
        site.change("POST", "acls", permission=permission, **rule)
    for user, mechanism in (("billing", "SCRAM-SHA-512"), ("shop", "SCRAM-SHA-256")):
        site.change("PUT", "users", user, password="a-secret", mechanism=mechanism)
    site.change("PUT", "quotas", quota="producer_byte_rate", value=1_048_576, user="shop")
    site.change("PUT", "quotas", quota="consumer_byte_rate", value=4_194_304, client_id="reports")
    site.change("PATCH", "topics", "orders", "settings", set={"retention.ms": "86400000"})


def _log_in_and_make_a_token(window: Browser, address: str) -> None:
    window.open(f"{address}/login?cluster=payroll")
    window.fill("[name=user]", "alice")
    window.fill("[name=password]", "a-secret")
    window.fill("[name=mechanism]", "PLAIN")
    window.click("form.login [type=submit]")
    window.wait_for("location.pathname === '/c/payroll' && document.readyState === 'complete'")
    window.open(f"{address}/c/payroll/tokens")
    window.fill("#add [name=renewers]", "User:bob")
    window.run("document.querySelector('#add').showModal()")
    window.click("#add [type=submit]")
    window.wait_for("document.querySelector('#add .answer.good')?.innerText.includes('hmac')")


@contextmanager
def _readers(bootstrap: str) -> Iterator[None]:
    """A group of two that are alike, and one that shares."""
    over = threading.Event()

    def read(name: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "billing", "client.id": name}
        consumer = Consumer({**config, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500})
        consumer.subscribe(["orders", "payments"])
        while not over.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    threads = [threading.Thread(target=read, args=(f"billing-{host}",)) for host in ("north", "south")]
    for each in threads:
        each.start()
    try:
        with member_of(bootstrap, "picking", "orders", client_id="warehouse"):
            yield
    finally:
        over.set()
        for each in threads:
            each.join()


@contextmanager
def _open_transaction(bootstrap: str) -> Iterator[None]:
    config = {"bootstrap.servers": bootstrap, "transactional.id": "monthly-report"}
    producer = Producer({**config, "transaction.timeout.ms": 900_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("customers", "not yet")
    producer.flush(60)
    try:
        yield
    finally:
        producer.abort_transaction(60)


@contextmanager
def _pipeline(bootstrap: str, files: str) -> Iterator[None]:
    """Orders counted by customer, on Spark."""
    builder = StreamsBuilder()
    orders = builder.stream("orders").filter(lambda key, value: "order" in value)
    counts = orders.group_by(lambda key, value: key).count(Materialized.as_("orders-of-customers"))
    counts.to_stream().to("customers")
    config = StreamsConfig("customers", bootstrap, state_dir=files, master="local[1]")
    app = StreamsApplication(builder.build(), config)
    with served([app]):
        app.start()
        try:
            yield
        finally:
            app.stop()


@contextmanager
def _shopping(bootstrap: str) -> Iterator[None]:
    """As people shop: now more, now less, so that charts have something to show."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        began, number = time.monotonic(), 0
        while not over.wait(0.1):
            elapsed = time.monotonic() - began
            for _ in range(int(60 + 40 * math.sin(elapsed / 2))):
                number += 1
                order = {
                    "order": number,
                    "total": number * 3 % 500,
                    "currency": "EUR",
                    "items": number % 5 + 1,
                }
                producer.produce(
                    "orders", json.dumps(order), f"customer-{number % 97}", headers={"source": "shop"}
                )
                producer.produce("payments", json.dumps({"order": number, "paid": number % 3 == 0}))
            producer.flush(60)

    shop = threading.Thread(target=write)
    shop.start()
    try:
        yield
    finally:
        over.set()
        shop.join()


def _wait_for_something_to_show(site: Site) -> None:
    until = time.monotonic() + 120
    while len([value for value in site.get("history")["recordsIn"] if value]) < POINTS or not _counted(site):
        assert time.monotonic() < until
        time.sleep(0.5)


def _counted(site: Site) -> bool:
    return any(query["batches"] > 1 for query in site.get("pipelines", "customers")["queries"])


def _prepare(window: Browser, name: str) -> None:
    if name == "records":
        window.wait_for("document.querySelectorAll('.record').length === 20")
        window.click(".record summary")
        window.wait_for("document.querySelector('.record[open] pre')")
    if name in {"overview", "topic", "group", "members"}:
        window.wait_for("document.querySelector('.chart path.line')")
    if name == "members":
        window.wait_for("document.querySelector('.replicas td.held')")
        window.run("document.querySelector('.replicas').closest('section').previousSibling.scrollIntoView()")
    if name == "balance":
        window.fill("form.panel [name=topics]", "clicks")
        window.fill("form.panel [name=how]", "spread")
        window.click("form.panel [type=submit]")
        window.wait_for("document.querySelector('#plan').children.length")
        window.run("document.querySelector('form.panel').scrollIntoView()")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
