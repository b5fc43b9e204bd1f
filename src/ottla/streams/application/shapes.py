"""The shape of a query: all that has to be the same for a checkpoint to fit it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ottla.streams.expressions import Expression
from ottla.streams.on_spark.query_plan import Kind, Query, is_generated
from ottla.streams.on_spark.subscriptions import query_subscriptions
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.partitions import task_count
from ottla.streams.plan.plan import ProcessorNode
from ottla.streams.state.spec import StoreKind, StoreSpec

# Stores whose changelog entries can be brought to other tasks, and how many bytes follow the record's key in
# the keys there.
KEY_SUFFIX_BYTES = {StoreKind.KEY_VALUE: 0, StoreKind.WINDOW: 8, StoreKind.SESSION: 16}
_REBUILDABLE = {*KEY_SUFFIX_BYTES, StoreKind.VERSIONED}
_WINDOWED = "window of "
# Of how tasks keep stores in Spark's state. What has another one is rebuilt from changelogs.
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class StoreShape:
    kind: str
    key: str
    value: str
    size_ms: int
    retention_ms: int
    is_named: bool
    # Whether a changelog has all of it.
    is_logged: bool
    # Whether its keys are those of records, so that it is known which task each entry belongs to.
    is_keyed: bool = field(default=False, compare=False)
    format: int = 1

    def reads(self, other: StoreShape) -> bool:
        """Whether what the other has written means the same here."""
        mine, theirs = ((s.kind, s.key, s.value, s.size_ms) for s in (self, other))
        return mine == theirs

    def __str__(self) -> str:
        size = "" if self.kind == StoreKind.KEY_VALUE.value else f" of {self.size_ms} ms"
        return f"a {self.kind} store{size} of {self.key} to {self.value}"


@dataclass(frozen=True, slots=True)
class QueryShape:
    kind: str
    # Topics of the sub-topology, and what is read for it: by the order of a checkpoint.
    topics: list[str]
    subscriptions: list[list[str]]
    tasks: int
    has_clock_timers: bool = False
    # What Spark aggregates, if it does.
    aggregation: str | None = None
    # Whether windows give their results when they close: which did is known to the checkpoint only.
    is_final: bool = False
    # Whether keys say which task a record belongs to, instead of partitions of topics.
    by_key: bool = False
    # Whether tasks read topics, rather than what Spark has shuffled.
    reads_topics: bool = field(default=True, compare=False)
    stores: dict[str, StoreShape] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QueryShape:
        stores = {name: StoreShape(**each) for name, each in data["stores"].items()}
        return cls(**{**data, "stores": stores})

    def reads(self, topic: str) -> bool:
        """Whether it is among what is read for it."""
        names = [name for each in self.subscriptions for name in each]
        patterns = [name[1:-1] for name in names if name.startswith("/")]
        return topic in names or any(re.fullmatch(pattern, topic) for pattern in patterns)

    def difference(self, former: QueryShape) -> str:
        """What makes the checkpoint of a former one unfit."""
        if self.subscriptions != former.subscriptions:
            return "it reads other topics"
        if self.kind != former.kind:
            return f"it ran as {former.kind} and runs as {self.kind}"
        if self.stores != former.stores:
            changed = self.stores.items() ^ former.stores.items()
            return f"its stores have changed ({', '.join(sorted({name for name, _ in changed}))})"
        if self.tasks != former.tasks:
            return f"it had {former.tasks} tasks and has {self.tasks}"
        return "its processors have changed"


def shape_of(query: Query, counts: Mapping[str, int]) -> QueryShape:
    plan = query.plan
    own = {topic for source in plan.sources() for topic in source.topics}
    aggregation = None
    if query.aggregation is not None:
        column = query.aggregation.column
        aggregation = "count" if column is None else _text(column.expression)
    own_keys = {
        store
        for node in plan.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.operator, CustomProcessor)
        for store in node.stores
    }
    return QueryShape(
        kind=query.kind.value,
        topics=sorted(own | {source.pattern for source in plan.sources() if source.pattern is not None}),
        subscriptions=[
            list(each.topics) if each.pattern is None else [f"/{each.pattern}/"]
            for each in query_subscriptions(query, "")
        ],
        tasks=0 if query.kind is Kind.STATELESS else task_count(plan, counts),
        has_clock_timers=query.has_clock_timers,
        aggregation=aggregation,
        is_final=any(
            isinstance(node, ProcessorNode) and getattr(node.operator, "final", False)
            for node in plan.nodes.values()
        ),
        by_key=query.by_key,
        reads_topics=bool(query.own_sources()),
        stores={
            name: _store_shape(
                spec, is_keyed=name not in own_keys, format_=_FORMAT if query.kind is Kind.TASKS else 1
            )
            for name, spec in plan.stores.items()
            if name not in plan.global_stores
        },
    )


def _store_shape(spec: StoreSpec, *, is_keyed: bool, format_: int) -> StoreShape:
    return StoreShape(
        kind=spec.kind.value,
        key=_format(spec.key.name),
        value=_format(spec.value.name),
        size_ms=spec.size_ms,
        retention_ms=spec.retention_ms,
        is_named=not is_generated(spec.name),
        is_logged=(
            spec.queryable and spec.logged and spec.kind in _REBUILDABLE and not spec.retain_duplicates
        ),
        is_keyed=is_keyed and spec.kind in KEY_SUFFIX_BYTES and _WINDOWED not in spec.key.name,
        format=format_,
    )


def _format(serde_name: str) -> str:
    """JSON stays JSON when the class it is read into has another name."""
    return serde_name.partition(" of ")[0]


def _text(expression: Any) -> str:
    return expression.sql if isinstance(expression, Expression) else str(expression)
