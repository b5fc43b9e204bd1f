"""Are the details of an order in order? No state: each order is judged by itself.

ottla run details.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from shop.model import ORDERS, VALIDATIONS, Order, Validation, is_new

from ottla.streams import Consumed, Produced, StreamsBuilder, Topology

APPLICATION_ID = "shop-details"
QUANTITY_MAX = 100


def judge(order: Order) -> Validation:
    if not 0 < order.quantity <= QUANTITY_MAX:
        return Validation("details", False, f"{order.quantity} pieces: 1 to {QUANTITY_MAX} can be ordered")
    if order.cents < 0:
        return Validation("details", False, f"a price of {order.cents} cents")
    if not order.product:
        return Validation("details", False, "no product")
    return Validation("details", True)


def build() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, Consumed.with_(str, Order))
    orders.filter(is_new).map_values(judge).to(VALIDATIONS, Produced.with_(str, Validation))
    return builder.build()
