"""Charges each validated order exactly once: payment and having read the order are one transaction.

ottla run payments.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from shop.model import ORDERS, PAYMENTS, Order, Payment, is_validated

from ottla.streams import Consumed, Produced, StreamsBuilder, Topology

APPLICATION_ID = "shop-payments"


def charge(order: Order) -> Payment:
    return Payment(order.id, order.customer, order.total_cents)


def build() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, Consumed.with_(str, Order))
    orders.filter(is_validated).map_values(charge).to(PAYMENTS, Produced.with_(str, Payment))
    return builder.build()
