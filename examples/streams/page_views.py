"""Visits from page views: a visit is a session of a user with no pause longer than half an hour.

Page views are JSON keyed by user. A visit is written once it is over, so that each appears exactly once:
late views within the grace of five minutes still count, even if they join two visits into one.

    ottla run page_views.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ottla.streams import (
    Consumed,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    Topology,
    Windowed,
)

APPLICATION_ID = "page-views"


@dataclass(frozen=True)
class PageView:
    page: str
    referrer: str | None = None


@dataclass(frozen=True)
class Visit:
    pages: list[str] = field(default_factory=list)
    seconds: int = 0


def add_view(user: str, view: PageView, visit: Visit) -> Visit:
    return Visit([*visit.pages, view.page])


def merge(user: str, first: Visit, second: Visit) -> Visit:
    return Visit(first.pages + second.pages)


def with_duration(key: Windowed, visit: Visit) -> tuple[str, Visit]:
    return key.key, Visit(visit.pages, (key.window.end_ms - key.window.start_ms) // 1000)


def build() -> Topology:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), timedelta(minutes=5))
    visits = (
        builder.stream("page-views", Consumed.with_(str, PageView))
        .group_by_key()
        .windowed_by(windows)
        .aggregate(
            Visit, add_view, merge, Materialized.as_("visits").with_key_serde(str).with_value_serde(Visit)
        )
        .suppress(Suppressed.until_window_closes().with_name("until-over"))
    )
    visits.to_stream().map(with_duration).to("visits", Produced.with_(Serdes.string(), Visit))
    return builder.build()
