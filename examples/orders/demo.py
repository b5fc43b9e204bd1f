"""The whole shop on one machine: three brokers, all services, customers, the console. Ctrl-C ends it.

make demo
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from shop.model import MAILS, ORDERS, PAYMENTS, Mail, Order, Payment
from shop.processes import HERE, Shop
from shop.topics import create_topics

from ottla.streams import TableView
from ottla.testing import BrokerCluster, free_ports

sys.path.insert(0, str(HERE.parent))

from programs import OTTLA, cleanup
from stage import QUICK_JAVA, News

SERVED = ("mailbox", "search", "orders-1", "orders-2", "connect", "console")
LOOK_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", type=float, default=10.0, help="orders a second")
    parser.add_argument("--separate", action="store_true", help="a process, and a Java, for each pipeline")
    given = parser.parse_args()
    os.environ.update(QUICK_JAVA | os.environ)
    with cleanup() as stack:
        try:
            show(stack, given.rate, given.separate)
        except KeyboardInterrupt:
            say("closing the shop …")
    return 0


def show(stack: ExitStack, rate: float, separate: bool) -> None:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-shop-")))
    ports = dict(zip(SERVED, free_ports("127.0.0.1", len(SERVED)), strict=True))
    say("starting three brokers …")
    cluster = stack.enter_context(BrokerCluster(relayed=False, log_level="warning", survives_ctrl_c=True))
    brokers = ["--bootstrap-server", cluster.bootstrap_servers]
    create_topics(cluster.bootstrap_servers)
    say(f"brokers: {cluster.bootstrap_servers}")
    say("starting the services …")
    shop = stack.enter_context(Shop(cluster.bootstrap_servers, directory, ports, separate=separate))
    shop.programs.start("console", [*OTTLA, "console", *brokers, "--port", str(ports["console"])])
    services = [part for url in shop.order_urls for part in ("--orders", url)]
    customers = [sys.executable, "customers.py", *brokers, "--rate", str(rate), *services]
    shop.programs.start("customers", customers)
    say(f"console: http://localhost:{ports['console']}   logs and mails: {directory}")
    say(f"orders:  {shop.order_urls[0]}/orders   search: http://localhost:{ports['search']}/search")
    say("customers order; orders are decided once Spark is up, in half a minute")
    watch(cluster, shop)


def watch(cluster: BrokerCluster, shop: Shop) -> None:
    with ExitStack() as stack:
        orders, payments, mails = (
            stack.enter_context(TableView(cluster.bootstrap_servers, topic, key=str, value=kind))
            for topic, kind in ((ORDERS, Order), (PAYMENTS, Payment), (MAILS, Mail))
        )
        news = News()
        while True:
            for log in shop.directory.glob("*.log"):
                news.tell(log)
            start_again(cluster, shop)
            shop.raise_dead()
            states = Counter(entry.value.state for entry in orders.all())
            told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
            say(f"orders: {told} · payments: {len(payments)} · mails: {len(mails)}")
            time.sleep(LOOK_S)


def start_again(cluster: BrokerCluster, shop: Shop) -> None:
    """What was killed, as systemd or Kubernetes would do it."""
    for name in shop.programs.start_again():
        say(f"{name} is gone, and is started again")
    if gone := [str(broker.id) for broker in cluster.brokers.values() if not broker.is_running]:
        say(f"broker {', '.join(gone)} is gone, and is started again")
        cluster.start()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
