"""Is there enough of it? Pieces are reserved for an order until it is validated, or given back if it fails.

How many are reserved for which order is kept, also that there are none left: an order that comes twice is
not served twice.

ottla run inventory.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shop.model import CREATED, DELIVERIES, FAILED, ORDERS, VALIDATIONS, Order, Validation

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

APPLICATION_ID = "shop-inventory"


@dataclass(frozen=True)
class Shelf:
    pieces: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        return self.pieces - self.reserved


class Filling(Processor):
    """Deliveries, by product."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.shelves = context.get_state_store("shelves")

    def process(self, record: Record) -> None:
        shelf = self.shelves.get(record.key) or Shelf()
        self.shelves.put(record.key, replace(shelf, pieces=shelf.pieces + record.value))


class Reserving(Processor):
    """Orders in all their states, by product."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.shelves = context.get_state_store("shelves")
        self.reservations = context.get_state_store("reservations")

    def process(self, record: Record) -> None:
        order = record.value
        shelf = self.shelves.get(record.key) or Shelf()
        reserved = self.reservations.get(order.id)
        if order.state == CREATED:
            if reserved is None:
                self._reserve(order, shelf, record.timestamp_ms)
        elif reserved:
            gone = 0 if order.state == FAILED else reserved
            self.shelves.put(record.key, Shelf(shelf.pieces - gone, shelf.reserved - reserved))
            self.reservations.put(order.id, 0)

    def _reserve(self, order: Order, shelf: Shelf, timestamp_ms: int) -> None:
        is_there = 0 < order.quantity <= shelf.free
        self.reservations.put(order.id, order.quantity if is_there else 0)
        if is_there:
            self.shelves.put(order.product, replace(shelf, reserved=shelf.reserved + order.quantity))
            verdict = Validation("inventory", True)
        else:
            verdict = Validation("inventory", False, f"{shelf.free} pieces of {order.product} left")
        self.context.forward(Record(order.id, verdict, timestamp_ms))


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("shelves", str, Shelf))
    builder.add_state_store(Stores.key_value_store("reservations", str, int))
    builder.stream(DELIVERIES, Consumed.with_(str, int)).process(Filling, stores=["shelves"])
    by_product = (
        builder.stream(ORDERS, Consumed.with_(str, Order))
        .select_key(lambda _, order: order.product)
        .repartition(Repartitioned.with_(str, Order).with_name("orders-by-product"))
    )
    reserving = by_product.process(Reserving, stores=["shelves", "reservations"])
    reserving.to(VALIDATIONS, Produced.with_(str, Validation))
    return builder.build()
