"""The example applications, run by the test driver."""

from __future__ import annotations

import runpy
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.cli.applications import load_application
from ottla.streams import Serdes
from ottla.streams.on_spark.query_plan import is_generated, naming_remedy
from ottla.streams.testing import TopologyTestDriver

ALL_EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLES = ALL_EXAMPLES / "streams"
TOPOLOGIES = [path for path in sorted(ALL_EXAMPLES.glob("*/*.py")) if "-> Topology:" in path.read_text()]
MINUTE = 60_000


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    name = f"example_{request.param}"
    # Dataclasses look up their annotations in the module they say they are from.
    module = SimpleNamespace()
    monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    module.__dict__.update(runpy.run_path(str(EXAMPLES / f"{request.param}.py"), run_name=name))
    return module


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_example_keeps_its_state_when_it_changes(path: Path) -> None:
    plan = load_application(str(path)).topology.plan
    assert [name for name in plan.stores if is_generated(name) and name not in plan.global_stores] == []
    assert [name for name in plan.internal_topics if is_generated(name)] == []


@pytest.mark.parametrize(
    ("store", "remedy"),
    [
        ("KSTREAM-JOINTHIS-0000000004-store", "StreamJoined.with_store_name"),
        ("KSTREAM-OUTERSHARED-0000000004-store", "StreamJoined.with_store_name"),
        ("KTABLE-SUPPRESS-STATE-STORE-0000000004", "Suppressed.with_name"),
        ("KSTREAM-AGGREGATE-STATE-STORE-0000000001", "Materialized.as_"),
    ],
)
def test_a_store_without_a_name_can_be_given_one(store: str, remedy: str) -> None:
    assert is_generated(store)
    assert naming_remedy(store) == remedy


@pytest.mark.parametrize("example", ["word_count"], indirect=True)
def test_word_count(example: SimpleNamespace) -> None:
    with TopologyTestDriver(example.build()) as driver:
        driver.create_input_topic("lines").pipe_value("Hello streams, hello Kafka!")
        driver.create_input_topic("lines").pipe_value("all streams lead to Kafka")
        counts = driver.create_output_topic("word-counts", str, int).read_map()
        assert counts == {"hello": 2, "streams": 2, "kafka": 2, "all": 1, "lead": 1, "to": 1}
        assert driver.get_state_store("counts").get("hello") == 2


@pytest.mark.parametrize("example", ["page_views"], indirect=True)
def test_a_late_view_joins_two_visits_into_one(example: SimpleNamespace) -> None:
    with TopologyTestDriver(example.build()) as driver:
        views = driver.create_input_topic("page-views", str, example.PageView)
        visits = driver.create_output_topic("visits", str, example.Visit)
        views.pipe_input("ann", example.PageView("/"), 0)
        views.pipe_input("ann", example.PageView("/cart"), 34 * MINUTE)
        views.pipe_input("ann", example.PageView("/late", "/"), 29 * MINUTE)
        views.pipe_input("bob", example.PageView("/"), 60 * MINUTE)
        assert visits.is_empty, "the visit may go on"
        views.pipe_input("bob", example.PageView("/"), 71 * MINUTE)
        assert visits.read_key_values() == [
            ("ann", example.Visit(["/", "/cart", "/late"], 34 * 60)),
        ]


@pytest.mark.parametrize("example", ["orders_payments"], indirect=True)
def test_a_late_payment_still_settles_its_order(example: SimpleNamespace) -> None:
    hour = 60 * MINUTE
    with TopologyTestDriver(example.build()) as driver:
        orders = driver.create_input_topic("orders", str, example.Order)
        payments = driver.create_input_topic("payments", str, example.Payment)
        settlements = driver.create_output_topic("settlements", str, example.Settlement)
        orders.pipe_input("o1", example.Order("ann", 500), 0)
        orders.pipe_input("o2", example.Order("bob", 700), 10 * hour)
        payments.pipe_input("o1", example.Payment(500, "card"), 30 * MINUTE)
        assert settlements.read_key_values() == [("o1", example.Settlement("ann", 0, "card"))]
        orders.pipe_input("o3", example.Order("cat", 100), 36 * hour)
        assert settlements.read_key_values() == [("o2", example.Settlement("bob", 700, None))]


@pytest.mark.parametrize("example", ["anomalies"], indirect=True)
def test_outliers_and_silence_are_reported_once(example: SimpleNamespace) -> None:
    with TopologyTestDriver(example.build()) as driver:
        readings = driver.create_input_topic("readings", str, Serdes.double())
        anomalies = driver.create_output_topic("anomalies")
        for number in range(20):
            readings.pipe_input("s1", 20.0 + number % 3)
        assert anomalies.is_empty
        readings.pipe_input("s1", 90.0)
        (record,) = anomalies.read_records()
        assert record.key == "s1"
        assert record.value.startswith("90.0 is ")
        driver.advance_wall_clock_time(timedelta(seconds=50))
        assert anomalies.is_empty
        driver.advance_wall_clock_time(timedelta(seconds=10))
        assert anomalies.read_key_values() == [("s1", "silent for 60 seconds")]
        driver.advance_wall_clock_time(timedelta(seconds=60))
        assert anomalies.is_empty, "it was reported"
