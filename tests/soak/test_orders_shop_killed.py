"""The shop of examples/orders while every service and every broker is killed at least once.

OTTLA_SOAK_ORDERS=10000 make soak PYTEST_ARGS=tests/soak/test_orders_shop_killed.py
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.integration.examples.orders_example import Customers, reckon, wait_settled

import customers as people  # isort: skip
from shop.processes import Shop  # isort: skip
from shop.topics import create_topics  # isort: skip

from ottla.testing import BrokerCluster, free_ports

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytest.importorskip("aiosmtpd", reason="needs aiosmtpd, to receive mails")

ORDERS = int(os.environ.get("OTTLA_SOAK_ORDERS", "10000"))
PER_SECOND = 40
SERVED = ("mailbox", "search", "orders-1", "orders-2", "connect")

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(3600)]


def test_nothing_is_lost_and_nobody_pays_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many that most do not spend too much within the hour: what is validated is what could go wrong.
    monkeypatch.setattr(people, "PEOPLE", [f"customer-{number}" for number in range(1 + ORDERS // 10)])
    begun = time.monotonic()

    def say(text: str) -> None:
        with capfd.disabled():
            print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    chance = random.Random(1)
    ports = dict(zip(SERVED, free_ports("127.0.0.1", len(SERVED)), strict=True))
    with BrokerCluster(relayed=False, log_level="warning") as cluster:
        servers = cluster.bootstrap_servers
        create_topics(servers)
        people.fill(servers, 10 * ORDERS)
        with Shop(servers, tmp_path, ports, separate=True) as shop:
            customers = Customers(shop.order_urls, ORDERS, PER_SECOND)
            customers.start()
            victims = [*shop.names, *cluster.brokers.values()]
            chance.shuffle(victims)
            killed = 0
            while victims or customers.is_alive():
                victim = victims.pop() if victims else chance.choice(shop.names)
                killed += 1
                if isinstance(victim, str):
                    shop.kill(victim)
                    time.sleep(chance.uniform(0.5, 3))
                    shop.start(victim)
                else:
                    victim.kill9()
                    time.sleep(chance.uniform(0.5, 3))
                    victim.start()
                    cluster.wait_in_sync("orders", 3)
                name = victim if isinstance(victim, str) else "a broker"
                say(f"{len(customers.posted)} orders posted, {killed} killed, the last of them {name}")
                time.sleep(chance.uniform(8, 15))
            assert customers.failure is None
            say(f"{ORDERS} orders posted, {killed} killed; waiting until all is settled")
            wait_settled(shop, servers, ORDERS, 900)
        states = reckon(servers, customers.posted, shop)
    say(f"{dict(states)}")
    assert states["VALIDATED"] + states["FAILED"] == ORDERS
