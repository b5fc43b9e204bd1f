"""Which topics a query subscribes to, and in what order: a checkpoint has offsets by that order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.streams.on_spark.columns import column_heads
from ottla.streams.on_spark.query_plan import Kind, Query
from ottla.streams.plan.plan import Plan, SourceNode


class Subscription(NamedTuple):
    reset: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matching(self, counts: Mapping[str, int]) -> list[str]:
        """Topics it stands for, of those that exist."""
        if self.pattern is None:
            return list(self.topics)
        return sorted(topic for topic in counts if re.fullmatch(self.pattern, topic))


def subscriptions(sources: Iterable[SourceNode], default_reset: str) -> list[Subscription]:
    """Of sources that are read together. They may begin at different ends."""
    by_reset: dict[str, list[SourceNode]] = {}
    for source in sources:
        by_reset.setdefault(source.offset_reset or default_reset, []).append(source)
    found: list[Subscription] = []
    for reset, group in sorted(by_reset.items()):
        topics = sorted({topic for source in group for topic in source.topics})
        if topics:
            found.append(Subscription(reset, tuple(topics)))
        patterns = sorted({source.pattern for source in group if source.pattern is not None})
        found += [Subscription(reset, pattern=pattern) for pattern in patterns]
    return found


def query_subscriptions(query: Query, default_reset: str) -> list[Subscription]:
    parts = (query.plan,) if query.kind is Kind.STATELESS else query.upstream
    groups = [sources for part in parts for sources in _read_together(part)]
    if query.kind is not Kind.STATELESS:
        groups.append(query.own_sources())
    return [each for sources in groups for each in subscriptions(sources, default_reset)]


def _read_together(part: Plan) -> list[list[SourceNode]]:
    """What functions work on first, then each chain of column expressions by itself."""
    heads = column_heads(part)
    plain = [head.source for head in heads if not head.nodes]
    return [*([plain] if plain else []), *([head.source] for head in heads if head.nodes)]
