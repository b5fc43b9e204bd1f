"""The activity example while its pipeline is killed: each view counts in one minute and one visit.

OTTLA_KILL_SEED=7 make soak PYTEST_ARGS=tests/soak/test_views_counted_through_kills.py
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from tests.integration.examples.orders_example import read_committed
from tests.integration.examples.test_log_examples import load_example
from tests.soak.pipeline_kills import kill_again_and_again, sorted_by_key
from tests.spark.processes import wait_until

activity, pipeline = load_example("activity/demo.py"), load_example("activity/pipeline.py")

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(900)]

MINUTE_S = 60
WAITING_S = 15


def test_each_view_is_counted_once() -> None:
    with activity.Stage(activity.TOPICS, activity.HERE) as stage:
        servers = stage.bootstrap_servers
        port = stage.free_port()
        stage.run("tracker.py", "--port", str(port))
        visitors = stage.run("visitors.py", "--tracker", f"http://localhost:{port}", "--rate", "50")
        wait_for_the_next_minute()
        kill_again_and_again(stage, pipeline.TOP_PAGES)
        stage.kill(visitors)

        def views() -> list[tuple[str, Any]]:
            return read_committed(servers, pipeline.VIEWS)

        def pages() -> Counter[str]:
            return Counter(view["page"] for _, view in views())

        def counted() -> Counter[str]:
            minutes: dict[tuple[str, int], int] = {}
            for _, row in read_committed(servers, pipeline.TOP_PAGES):
                minutes[row["page"], row["from_ms"]] = row["views"]
            return sum((Counter({page: views}) for (page, _), views in minutes.items()), Counter())

        def in_visits() -> int:
            # The last of each key is what holds; a visit that became part of another has no value any more.
            rows = dict(read_committed(servers, pipeline.VISITS, lambda value: value))
            return sum(json.loads(value)["views"] for value in rows.values() if value is not None)

        wait_until(lambda: counted() == pages(), 120, "all views by page")
        wait_until(lambda: in_visits() == pages().total(), 60, "all views in visits")
        viewers = {visitor for visitor, _ in views()}
        steps = sorted_by_key(read_committed(servers, pipeline.FUNNEL, bytes.decode))
        stage.raise_dead()
    assert {visitor for visitor, _ in steps} == viewers
    for visitor in viewers:
        told = tuple(step for other, step in steps if other == visitor)
        assert told == pipeline.STEPS[: len(told)]


def wait_for_the_next_minute() -> None:
    """And some seconds of it. What waits for the pipeline is worked off partition after partition then: views
    of the second are late for windows that do not stay open for as long."""
    begun = time.time()
    wait_until(
        lambda: (time.time() - WAITING_S) // MINUTE_S > begun // MINUTE_S,
        MINUTE_S + 2 * WAITING_S,
        "the minute behind that of the first views",
    )
