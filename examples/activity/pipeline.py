"""Visits, the pages that are popular now, and how far visitors get: from looking to searching to clicking.

ottla run pipeline.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ottla.streams import (
    Consumed,
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
)

APPLICATION_ID = "activity"
VIEWS, SEARCHES, CLICKS = "page-views", "searches", "clicks"
VISITS, TOP_PAGES, FUNNEL = "visits", "top-pages", "funnel"
STEPS = ("viewed", "searched", "clicked")


@dataclass(frozen=True)
class Visit:
    views: int = 0
    pages: list[str] = field(default_factory=list)

    def with_(self, page: str) -> Visit:
        return Visit(self.views + 1, self.pages if page in self.pages else [*self.pages, page])

    def merged(self, other: Visit) -> Visit:
        return Visit(self.views + other.views, list(dict.fromkeys([*self.pages, *other.pages])))


class Progress(Processor):
    """Of each visitor: a step counts once, and only behind the one before it."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.steps = context.get_state_store("steps")

    def process(self, record: Record) -> None:
        reached = self.steps.get(record.key) or 0
        if reached < len(STEPS) and record.value == STEPS[reached]:
            self.steps.put(record.key, reached + 1)
            self.context.forward(record)


def to_visit(visitor: Windowed, visit: Visit | None) -> tuple[str, dict[str, object] | None]:
    """Keyed by its beginning, so that a visit that grows replaces itself, and one that was joined goes."""
    window = visitor.window
    key = f"{visitor.key}@{window.start_ms}"
    if visit is None:
        return key, None
    seconds = (window.end_ms - window.start_ms) // 1000
    return key, {"visitor": visitor.key, "seconds": seconds, "views": visit.views, "pages": visit.pages}


def to_page(page: Windowed, count: int) -> tuple[str, dict[str, object]]:
    """Keyed by its minute as well, so that what comes late replaces it, and no later one."""
    from_ms = page.window.start_ms
    return f"{page.key}@{from_ms}", {"page": page.key, "from_ms": from_ms, "views": count}


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("steps", str, int))
    views, searches, clicks = (
        builder.stream(topic, Consumed.with_(str, dict)) for topic in (VIEWS, SEARCHES, CLICKS)
    )

    sessions = SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), timedelta(minutes=1))
    visits = (
        views.group_by_key()
        .windowed_by(sessions)
        .aggregate(
            Visit,
            lambda _, view, visit: visit.with_(view["page"]),
            lambda _, one, other: one.merged(other),
            Materialized.as_("visits").with_value_serde(Visit),
        )
    )
    visits.to_stream().map(to_visit).to(VISITS, Produced.with_(str, dict))

    # A day: so long may the pipeline be down. What it catches up with goes partition after partition into the
    # topic by which views come to their page, so that those of the second are late by the whole pause.
    minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(days=1))
    popular = (
        views.group_by(lambda _, view: view["page"], Grouped.with_(str, dict).with_name("by-page"))
        .windowed_by(minutes)
        .count(Materialized.as_("top-pages"))
    )
    popular.to_stream().map(to_page).to(TOP_PAGES, Produced.with_(str, dict))

    seen, asked, taken = (
        stream.map_values(lambda _, step=step: step)
        for step, stream in zip(STEPS, (views, searches, clicks), strict=True)
    )
    progress = seen.merge(asked).merge(taken).process(Progress, stores=["steps"])
    progress.to(FUNNEL, Produced.with_(str, str))
    return builder.build()
