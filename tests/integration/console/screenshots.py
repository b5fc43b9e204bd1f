"""Takes the screenshots of the guide: `make screenshots`."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.chromium import Browser, browser
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from connect.worker_process import our_worker, settings_of
from console_site import Site, commit

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.streams import Materialized, StreamsBuilder
from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.streams.serving import served
from ottla.testing import BrokerCluster

PAGES = {
    "overview": "",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records?limit=20",
    "group": "/groups/billing",
    "balance": "/balance",
    "connectors": "/connectors",
    "connector": "/connectors/orders-to-file",
    "new-connector": "/connector-plugins/org.apache.kafka.connect.file.FileStreamSinkConnector",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/customers",
    "acls": "/acls",
}
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TEXT = {f"{part}.converter": "org.apache.kafka.connect.storage.StringConverter" for part in ("key", "value")}
POINTS = 20


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with BrokerCluster() as cluster, tempfile.TemporaryDirectory() as files, ExitStack() as stack:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        # A client that is asked at once has been seen to wait in vain for who administers.
        admin.list_topics(timeout=60)
        sizes = {"orders": (6, 3), "payments": (3, 3), "clicks": (12, 2), "customers": (3, 3)}
        topics = [NewTopic(name, count, factor) for name, (count, factor) in sizes.items()]
        for made in admin.create_topics(topics).values():
            made.result(60)
        commit(bootstrap, "billing", "orders", 6)
        with our_worker(settings_of(bootstrap)) as worker:
            connect = f"http://{worker.address}"
            settings = ClusterSettings("local", bootstrap, connect=connect, sample_s=1.0)
            with console_served([settings]) as address, browser() as window:
                site = Site(address).log_in()
                for name, file in (
                    ("orders-to-file", f"{files}/orders.txt"),
                    ("archive", "/nowhere/archive.txt"),
                ):
                    config = {"connector.class": SINK, "topics": "orders", "file": file, **TEXT}
                    site.change("PUT", "connectors", name, set=config)
                stack.enter_context(_pipeline(bootstrap, files))
                _write(bootstrap, site)
                for theme in ("light", "dark"):
                    window.prefer(theme)
                    for name, path in PAGES.items():
                        window.open(f"{address}/c/local{path}")
                        _prepare(window, name)
                        window.screenshot(directory / f"{name}-{theme}.png")


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


def _write(bootstrap: str, site: Site) -> None:
    """As people shop: now more, now less, so that charts have something to show."""
    producer = Producer({"bootstrap.servers": bootstrap})
    began, number = time.monotonic(), 0
    while len([value for value in site.get("history")["recordsIn"] if value]) < POINTS or not _counted(site):
        elapsed = time.monotonic() - began
        for _ in range(int(60 + 40 * math.sin(elapsed / 2))):
            number += 1
            order = {"order": number, "total": number * 3 % 500, "currency": "EUR", "items": number % 5 + 1}
            producer.produce(
                "orders", json.dumps(order), f"customer-{number % 97}", headers={"source": "shop"}
            )
            producer.produce("payments", json.dumps({"order": number, "paid": number % 3 == 0}))
        producer.flush(60)
        time.sleep(0.1)


def _counted(site: Site) -> bool:
    return any(query["batches"] > 1 for query in site.get("pipelines", "customers")["queries"])


def _prepare(window: Browser, name: str) -> None:
    if name == "records":
        window.wait_for("document.querySelectorAll('.record').length === 20")
        window.click(".record summary")
        window.wait_for("document.querySelector('.record[open] pre')")
    if name in {"overview", "topic", "group"}:
        window.wait_for("document.querySelector('.chart path.line')")
    if name == "balance":
        window.fill("form.panel [name=topics]", "clicks")
        window.fill("form.panel [name=how]", "spread")
        window.click("form.panel [type=submit]")
        window.wait_for("document.querySelector('#plan').children.length")
        window.run("document.querySelector('form.panel').scrollIntoView()")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
