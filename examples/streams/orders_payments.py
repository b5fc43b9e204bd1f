"""Orders and their payments, joined within an hour of each other; a payment may arrive up to a day late.

An order that was not paid appears alone, but only once no payment can come any more: nothing is ever taken
back.

    ottla run orders_payments.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ottla.streams import Consumed, JoinWindows, Produced, StreamJoined, StreamsBuilder, Topology

APPLICATION_ID = "orders-payments"


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


@dataclass(frozen=True)
class Payment:
    cents: int
    method: str


@dataclass(frozen=True)
class Settlement:
    customer: str
    due_cents: int
    method: str | None


def settle(order: Order, payment: Payment | None) -> Settlement:
    if payment is None:
        return Settlement(order.customer, order.cents, None)
    return Settlement(order.customer, order.cents - payment.cents, payment.method)


def build() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(str, Order))
    payments = builder.stream("payments", Consumed.with_(str, Payment))
    windows = JoinWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(days=1))
    named = StreamJoined.with_(str, Order, Payment).with_store_name("settled")
    settled = orders.left_join(payments, settle, windows, named)
    settled.to("settlements", Produced.with_(str, Settlement))
    return builder.build()
