"""The shop of examples/orders as it is: a broker, all services as processes, customers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.examples.orders_example import Customers, reckon, wait_settled

import customers as people  # isort: skip
from shop.processes import Shop  # isort: skip
from shop.topics import create_topics  # isort: skip

from ottla.testing import BrokerProcess, free_ports

pytest.importorskip("aiosmtpd", reason="needs aiosmtpd, to receive mails")

ORDERS = 40
SERVED = ("mailbox", "search", "orders-1", "orders-2", "connect")


@pytest.mark.slow
def test_orders_come_to_an_end(tmp_path: Path) -> None:
    ports = dict(zip(SERVED, free_ports("127.0.0.1", len(SERVED)), strict=True))
    with BrokerProcess(log_level="warning") as broker:
        servers = broker.bootstrap_servers
        create_topics(servers)
        people.fill(servers)
        with Shop(servers, tmp_path, ports) as shop:
            customers = Customers(shop.order_urls, ORDERS, 20)
            customers.run()
            assert customers.failure is None
            wait_settled(shop, servers, ORDERS, 200)
            assert people.post(shop.order_urls, next(people.invented(1, 1))) == 200
        states = reckon(servers, customers.posted, shop)
    assert states["VALIDATED"] + states["FAILED"] == ORDERS
    assert states["mails sent again"] == 0
