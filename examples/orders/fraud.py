"""Does somebody order for more than we trust them with? What a customer spent in the last hour is remembered.

ottla run fraud.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from shop.model import ORDERS, VALIDATIONS, Order, Validation, is_new

from ottla.streams import (
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Repartitioned,
    Stores,
    StreamsBuilder,
    Topology,
)

APPLICATION_ID = "shop-fraud"
CENTS_MAX = 200_000
PERIOD_MS = int(timedelta(hours=1).total_seconds() * 1000)


@dataclass(frozen=True)
class Purchase:
    order: str
    time_ms: int
    cents: int


@dataclass(frozen=True)
class Spending:
    purchases: list[Purchase] = field(default_factory=list)

    def since(self, time_ms: int) -> Spending:
        return Spending([each for each in self.purchases if each.time_ms > time_ms])

    def with_(self, purchase: Purchase) -> Spending:
        """An order that comes twice counts once."""
        others = [each for each in self.purchases if each.order != purchase.order]
        return Spending([*others, purchase])

    @property
    def cents(self) -> int:
        return sum(each.cents for each in self.purchases)


class Suspicion(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.spending = context.get_state_store("spending")

    def process(self, record: Record) -> None:
        order = record.value
        recent = (self.spending.get(record.key) or Spending()).since(record.timestamp_ms - PERIOD_MS)
        bought = recent.with_(Purchase(order.id, record.timestamp_ms, order.total_cents))
        if bought.cents > CENTS_MAX:
            verdict = Validation("fraud", False, f"{bought.cents / 100:.2f} within an hour")
        else:
            verdict, recent = Validation("fraud", True), bought
        self.spending.put(record.key, recent)
        self.context.forward(Record(order.id, verdict, record.timestamp_ms))


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("spending", str, Spending))
    orders = builder.stream(ORDERS, Consumed.with_(str, Order)).filter(is_new)
    by_customer = orders.select_key(lambda _, order: order.customer).repartition(
        Repartitioned.with_(str, Order).with_name("orders-by-customer")
    )
    by_customer.process(Suspicion, stores=["spending"]).to(VALIDATIONS, Produced.with_(str, Validation))
    return builder.build()
