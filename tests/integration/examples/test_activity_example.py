"""Activity of visitors: visits, popular pages and the funnel; and what the tracker refuses."""

from __future__ import annotations

import pytest
from starlette.exceptions import HTTPException
from tests.integration.examples.test_log_examples import load_example

from ottla.streams.testing import TopologyTestDriver

pipeline = load_example("activity/pipeline.py")
live = load_example("activity/live.py")
tracker = load_example("activity/tracker.py")
MINUTE = 60_000


def test_visits_are_sessions_and_join() -> None:
    with TopologyTestDriver(pipeline.build()) as driver:
        views = driver.create_input_topic("page-views", str, dict)
        for minute, page in ((0, "home"), (30.5, "lamps"), (15, "home")):
            views.pipe_input("ann", {"page": page}, int(minute * MINUTE))
        visits = driver.create_output_topic("visits", str, dict).read_map()
    kept = {key: visit for key, visit in visits.items() if visit is not None}
    assert kept == {"ann@0": {"visitor": "ann", "seconds": 1830, "views": 3, "pages": ["home", "lamps"]}}


def test_pages_are_counted_by_the_minute() -> None:
    with TopologyTestDriver(pipeline.build()) as driver:
        views = driver.create_input_topic("page-views", str, dict)
        for visitor, second in (("ann", 1), ("bob", 2), ("ann", 61)):
            views.pipe_input(visitor, {"page": "home"}, second * 1000)
        rows = driver.create_output_topic("top-pages", str, dict).read_values()
    assert {row["from_ms"]: row["views"] for row in rows} == {0: 2, MINUTE: 1}


def test_views_of_one_partition_count_behind_hours_of_another() -> None:
    with TopologyTestDriver(pipeline.build()) as driver:
        views = driver.create_input_topic("page-views", str, dict)
        for visitor, minute in (("ann", 0), ("ann", 600), ("bob", 0), ("bob", 600)):
            views.pipe_input(visitor, {"page": "home"}, minute * MINUTE)
        latest = driver.create_output_topic("top-pages", str, dict).read_map()
    assert {row["from_ms"]: row["views"] for row in latest.values()} == {0: 2, 600 * MINUTE: 2}
    assert [row["views"] for row in live.popular(latest.values())] == [2]


def test_a_step_counts_once_and_in_order() -> None:
    with TopologyTestDriver(pipeline.build()) as driver:
        topics = {
            name: driver.create_input_topic(name, str, dict) for name in ("page-views", "searches", "clicks")
        }
        funnel = driver.create_output_topic("funnel", str, str)
        for topic in ("clicks", "page-views", "clicks", "searches", "searches", "clicks", "clicks"):
            topics[topic].pipe_input("ann", {"page": "home", "text": "x"})
        assert funnel.read_key_values() == [("ann", step) for step in ("viewed", "searched", "clicked")]


def test_the_page_counts_who_got_how_far_and_shows_the_last_minute() -> None:
    assert live.funnel_of(["viewed", "clicked", "viewed"]) == {"viewed": 3, "searched": 1, "clicked": 1}
    rows = [
        {"page": page, "from_ms": at, "views": n} for page, at, n in (("a", 0, 9), ("b", 1, 1), ("c", 1, 2))
    ]
    assert [row["page"] for row in live.popular(rows)] == ["c", "b"]
    assert live.popular([]) == []


@pytest.mark.parametrize(
    ("event", "named"),
    [({}, "view, search, click"), ({"kind": "view", "visitor": "a"}, "page"), ([], "view, search, click")],
)
def test_what_is_no_event_is_refused(event: object, named: str) -> None:
    with pytest.raises(HTTPException, match=named):
        tracker.parse(event)


def test_an_event_goes_to_the_topic_of_its_kind() -> None:
    topic, visitor, stored = tracker.parse({"kind": "search", "visitor": "ann", "text": "lamp"})
    assert (topic, visitor, stored["text"]) == ("searches", "ann", "lamp")
