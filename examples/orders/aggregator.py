"""Moves an order to VALIDATED once all checks passed, or to FAILED with the first that did not.

An order and what the checks say of it come from two topics, in either order: both are kept until they meet.
That it was decided is kept, too: a customer who got no answer posts an order again, and must not pay again.

    ottla run aggregator.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shop.model import CHECKS, FAILED, ORDERS, VALIDATED, VALIDATIONS, Order, Validation, is_new

from ottla.streams import (
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)

APPLICATION_ID = "shop-aggregator"


@dataclass(frozen=True)
class Verdicts:
    """What is known of an order so far."""

    order: Order | None = None
    checks: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    is_decided: bool = False

    def with_validation(self, validation: Validation) -> Verdicts:
        if validation.check in self.checks:
            return self
        reasons = self.reasons if validation.passed else [*self.reasons, validation.reason]
        return replace(self, checks=[*self.checks, validation.check], reasons=reasons)

    @property
    def decision(self) -> Order | None:
        """The order as it goes on, or None while that is open."""
        if self.order is None:
            return None
        if self.reasons:
            return self.order.become(FAILED, self.reasons)
        return self.order.become(VALIDATED, []) if set(self.checks) == set(CHECKS) else None


class Deciding(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.verdicts = context.get_state_store("verdicts")

    def process(self, record: Record) -> None:
        known = self.verdicts.get(record.key) or Verdicts()
        if known.is_decided:
            return
        if isinstance(record.value, Order):
            known = replace(known, order=record.value)
        else:
            known = known.with_validation(record.value)
        if (decision := known.decision) is not None:
            self.context.forward(record.with_value(decision))
            known = Verdicts(is_decided=True)
        self.verdicts.put(record.key, known)


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("verdicts", str, Verdicts))
    orders = builder.stream(ORDERS, Consumed.with_(str, Order)).filter(is_new)
    validations = builder.stream(VALIDATIONS, Consumed.with_(str, Validation))
    decided = orders.merge(validations).process(Deciding, stores=["verdicts"])
    decided.to(ORDERS, Produced.with_(str, Order))
    return builder.build()
