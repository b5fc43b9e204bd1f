"""The whole shop on one machine: three brokers, all services, customers, the console. Ctrl-C ends it.

make demo
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
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

from stage import QUICK_JAVA, News

LOOK_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", type=float, default=10.0, help="orders a second")
    parser.add_argument("--separate", action="store_true", help="a process, and a Java, for each pipeline")
    given = parser.parse_args()
    names = ("mailbox", "search", "orders-1", "orders-2", "connect", "console")
    # Who is ended by a signal leaves this with an exception, and so leaves nothing behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    os.environ.update(QUICK_JAVA | os.environ)
    ports = dict(zip(names, free_ports("127.0.0.1", len(names)), strict=True))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-shop-")))
        say("starting three brokers …")
        cluster = stack.enter_context(BrokerCluster(relayed=False, log_level="warning", survives_ctrl_c=True))
        create_topics(cluster.bootstrap_servers)
        say(f"brokers: {cluster.bootstrap_servers}")
        say("starting the services …")
        shop = stack.enter_context(Shop(cluster.bootstrap_servers, directory, ports, separate=given.separate))
        console = start(directory / "console.log", "-m", "ottla.cli.main", "console",
                        "--bootstrap-server", cluster.bootstrap_servers,
                        "--port", str(ports["console"]))  # fmt: skip
        stack.callback(stop, console)
        services = [part for url in shop.order_urls for part in ("--orders", url)]
        customers = start(directory / "customers.log", "customers.py",
                          "--bootstrap-server", cluster.bootstrap_servers,
                          "--rate", str(given.rate), *services)  # fmt: skip
        stack.callback(stop, customers)
        say(f"console: http://localhost:{ports['console']}   logs and mails: {directory}")
        say(f"orders:  {shop.order_urls[0]}/orders   search: http://localhost:{ports['search']}/search")
        say("customers order; orders are decided once Spark is up, in half a minute")
        watch(cluster.bootstrap_servers, shop)
    return 0


def watch(bootstrap_servers: str, shop: Shop) -> None:
    with ExitStack() as stack:
        orders, payments, mails = (
            stack.enter_context(TableView(bootstrap_servers, topic, key=str, value=kind))
            for topic, kind in ((ORDERS, Order), (PAYMENTS, Payment), (MAILS, Mail))
        )
        try:
            news = News()
            while True:
                for log in shop.directory.glob("*.log"):
                    news.tell(log)
                shop.raise_dead()
                states = Counter(entry.value.state for entry in orders.all())
                told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
                say(f"orders: {told} · payments: {len(payments)} · mails: {len(mails)}")
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            say("closing the shop …")


def start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=HERE, stdout=out, stderr=out, start_new_session=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
