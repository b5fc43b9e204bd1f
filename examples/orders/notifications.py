"""Who is written what: orders, their payments and the customers, joined into mails.

`email_service.py` sends them: what leaves the shop cannot be part of a transaction.

    ottla run notifications.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from shop.model import (
    CUSTOMERS,
    MAILS,
    ORDERS,
    PAYMENTS,
    Customer,
    Mail,
    Order,
    Payment,
    has_failed,
    is_validated,
)

from ottla.streams import Consumed, JoinWindows, Produced, StreamJoined, StreamsBuilder, Topology

APPLICATION_ID = "shop-notifications"
HELP = "help@shop.example"
"""Gets what cannot be delivered: nothing is dropped because a customer is not known."""
# However long a service was away, a payment must still find its order.
APART_MAX = timedelta(days=1)


def paid(order: Order, payment: Payment) -> Mail:
    text = f"{order.quantity} × {order.product} on the way. You were charged {payment.cents / 100:.2f}."
    return Mail(order.id, order.customer, f"Your order {order.id}", text)


def failed(order: Order) -> Mail:
    text = f"{order.quantity} × {order.product}: {'; '.join(order.reasons)}. You were not charged."
    return Mail(order.id, order.customer, f"Your order {order.id} could not be taken", text)


def addressed(mail: Mail, customer: Customer | None) -> Mail:
    return replace(mail, to=HELP if customer is None else customer.mail)


def build() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, Consumed.with_(str, Order))
    payments = builder.stream(PAYMENTS, Consumed.with_(str, Payment))
    customers = builder.global_table(CUSTOMERS, Consumed.with_(str, Customer))
    windows = JoinWindows.of_time_difference_with_no_grace(APART_MAX)
    confirmed = orders.filter(is_validated).join(
        payments, paid, windows, StreamJoined.with_(str, Order, Payment).with_store_name("paid")
    )
    refused = orders.filter(has_failed).map_values(failed)
    mails = confirmed.merge(refused).left_join(
        customers, addressed, key_selector=lambda _, mail: mail.customer
    )
    mails.to(MAILS, Produced.with_(str, Mail))
    return builder.build()
