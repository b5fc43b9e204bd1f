"""The pipelines of the shop, each by itself, on records and without Spark."""

from __future__ import annotations

import itertools

import pytest
from tests.integration.examples import orders_example  # noqa: F401 - puts the example into reach

import aggregator  # isort: skip
import details  # isort: skip
import fraud  # isort: skip
import inventory  # isort: skip
import notifications  # isort: skip
import payments  # isort: skip
from shop.model import CHECKS, CREATED, FAILED, VALIDATED, Customer, Mail, Order, Payment, Validation  # isort: skip

from ottla.streams.testing import TopologyTestDriver


def order(number: str = "1", *, quantity: int = 1, cents: int = 100, state: str = CREATED) -> Order:
    return Order(number, "ann", "lamp", quantity, cents, state)


@pytest.mark.parametrize(("quantity", "passed"), [(1, True), (100, True), (0, False), (101, False)])
def test_details(quantity: int, passed: bool) -> None:
    with TopologyTestDriver(details.build()) as driver:
        driver.create_input_topic("orders", str, Order).pipe_input("1", order(quantity=quantity))
        (validation,) = driver.create_output_topic("order-validations", str, Validation).read_values()
        assert (validation.check, validation.passed) == ("details", passed)


def test_somebody_who_spends_too_much_within_an_hour_is_stopped() -> None:
    with TopologyTestDriver(fraud.build()) as driver:
        orders = driver.create_input_topic("orders", str, Order)
        validations = driver.create_output_topic("order-validations", str, Validation)
        for number, minute in (("1", 0), ("1", 1), ("2", 10), ("3", 50), ("4", 62)):
            orders.pipe_input(number, order(number, cents=90_000), minute * 60_000)
        assert {number: each.passed for number, each in validations.read_map().items()} == {
            "1": True,
            "2": True,
            "3": False,
            "4": True,
        }


def test_pieces_are_reserved_and_given_back() -> None:
    with TopologyTestDriver(inventory.build()) as driver:
        orders = driver.create_input_topic("orders", str, Order)
        validations = driver.create_output_topic("order-validations", str, Validation)
        driver.create_input_topic("deliveries", str, int).pipe_input("lamp", 5)
        orders.pipe_input("1", order("1", quantity=3))
        orders.pipe_input("2", order("2", quantity=3))
        orders.pipe_input("1", order("1", quantity=3))  # posted again: neither reserved nor judged again
        assert [each.passed for each in validations.read_values()] == [True, False]
        orders.pipe_input("1", order("1", quantity=3, state=FAILED))
        orders.pipe_input("3", order("3", quantity=5))
        assert [each.passed for each in validations.read_values()] == [True]
        orders.pipe_input("3", order("3", quantity=5, state=VALIDATED))
        orders.pipe_input("4", order("4", quantity=1))
        assert [each.passed for each in validations.read_values()] == [False]


@pytest.mark.parametrize("events", list(itertools.permutations(["order", *CHECKS])))
@pytest.mark.parametrize("refused_by", [None, "fraud"])
def test_an_order_is_decided_once_whatever_comes_first(
    events: tuple[str, ...], refused_by: str | None
) -> None:
    with TopologyTestDriver(aggregator.build()) as driver:
        orders = driver.create_input_topic("orders", str, Order)
        validations = driver.create_input_topic("order-validations", str, Validation)
        decided = driver.create_output_topic("orders", str, Order)
        for event in [*events, *events]:
            if event == "order":
                orders.pipe_input("1", order())
            else:
                validations.pipe_input("1", Validation(event, event != refused_by, "because"))
        states = [each.state for each in decided.read_values() if each.state != CREATED]
        assert states == [VALIDATED if refused_by is None else FAILED]


def test_only_validated_orders_are_charged() -> None:
    with TopologyTestDriver(payments.build()) as driver:
        orders = driver.create_input_topic("orders", str, Order)
        for state in (CREATED, VALIDATED):
            orders.pipe_input("1", order("1", quantity=3, state=state))
        orders.pipe_input("2", order("2", state=FAILED))
        charged = driver.create_output_topic("payments", str, Payment).read_values()
        assert charged == [Payment("1", "ann", 300)]


def test_everybody_is_written_once() -> None:
    with TopologyTestDriver(notifications.build()) as driver:
        driver.create_input_topic("customers", str, Customer).pipe_input(
            "ann", Customer("Ann", "ann@mail.example")
        )
        orders = driver.create_input_topic("orders", str, Order)
        orders.pipe_input("1", order("1", state=VALIDATED))
        orders.pipe_input("2", order("2", state=FAILED))
        driver.create_input_topic("payments", str, Payment).pipe_input("1", Payment("1", "ann", 100))
        mails = driver.create_output_topic("mails", str, Mail).read_values()
        assert sorted((mail.order, mail.to) for mail in mails) == [
            ("1", "ann@mail.example"),
            ("2", "ann@mail.example"),
        ]
