"""Takes the screenshots of the guide: `make screenshots`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from chromium import browser
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from console_site import commit

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import BrokerCluster

PAGES = {
    "overview": "",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records?limit=20",
    "group": "/groups/billing",
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with BrokerCluster() as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(name, count, 3) for name, count in (("orders", 6), ("payments", 3), ("clicks", 12))
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(2000):
            order = {"order": number, "total": number * 3 % 500, "currency": "EUR", "items": number % 5 + 1}
            producer.produce(
                "orders", json.dumps(order), f"customer-{number % 97}", headers={"source": "shop"}
            )
            producer.produce("payments", json.dumps({"order": number, "paid": number % 3 == 0}))
        assert producer.flush(60) == 0
        commit(bootstrap, "billing", "orders", 6)
        with console_served([ClusterSettings("local", bootstrap)]) as address, browser() as window:
            for theme in ("light", "dark"):
                window.prefer(theme)
                for name, path in PAGES.items():
                    window.open(f"{address}/c/local{path}")
                    if name == "records":
                        window.wait_for("document.querySelectorAll('.record').length === 20")
                        window.click(".record summary")
                        window.wait_for("document.querySelector('.record[open] pre')")
                    window.screenshot(directory / f"{name}-{theme}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
