"""The shop's events. Services know each other by these alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

ORDERS = "orders"
"""By order id. The orders service writes CREATED, the aggregator what becomes of it; nobody else writes."""
VALIDATIONS = "order-validations"
DELIVERIES = "deliveries"
"""By product: so many pieces have come into the warehouse."""
CUSTOMERS = "customers"
PAYMENTS = "payments"
MAILS = "mails"
TOPICS = (ORDERS, VALIDATIONS, DELIVERIES, PAYMENTS, MAILS)
COMPACTED = (CUSTOMERS,)

CREATED, VALIDATED, FAILED = "CREATED", "VALIDATED", "FAILED"
FINAL = (VALIDATED, FAILED)
CHECKS = ("details", "fraud", "inventory")


@dataclass(frozen=True)
class Order:
    id: str
    customer: str
    product: str
    quantity: int
    cents: int
    """Of one piece."""
    state: str = CREATED
    reasons: list[str] = field(default_factory=list)
    """Why it failed."""

    @property
    def total_cents(self) -> int:
        return self.quantity * self.cents

    def become(self, state: str, reasons: list[str]) -> Order:
        return replace(self, state=state, reasons=reasons)


@dataclass(frozen=True)
class Validation:
    """What one check says of one order."""

    check: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Customer:
    name: str
    mail: str


@dataclass(frozen=True)
class Payment:
    order: str
    customer: str
    cents: int


@dataclass(frozen=True)
class Mail:
    order: str
    customer: str
    subject: str
    text: str
    to: str = ""


def is_new(order: Order) -> bool:
    return order.state == CREATED


def is_validated(order: Order) -> bool:
    return order.state == VALIDATED


def has_failed(order: Order) -> bool:
    return order.state == FAILED
