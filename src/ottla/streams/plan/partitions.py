"""How many partitions internal topics and tasks have: enough for what is written to them, and equal where
streams join."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.streams.errors import TopologyError
from ottla.streams.plan.plan import Plan, SourceNode, subtopologies


def partition_counts(
    plan: Plan, existing: Mapping[str, int], kept: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Partitions of every topic the plan reads or owns, given those of topics that exist, and of internal
    ones that are to stay as they are."""
    counts = {topic: count for topic, count in existing.items() if topic not in plan.internal_topics}
    counts |= kept or {}
    for name, owned in plan.internal_topics.items():
        if owned.partitions is not None:
            counts[name] = owned.partitions
    groups = [_topics(plan, group) for group in plan.copartitioned]
    # A topic can depend on one further up, and that on another: every round settles at least one.
    for _ in range(len(plan.internal_topics) + 1):
        for group in groups:
            known = [counts[topic] for topic in group if topic in counts]
            for topic in group:
                if topic in plan.internal_topics and topic not in counts and known:
                    counts[topic] = max(known)
        for topic in plan.internal_topics:
            upstream = _upstream(plan, topic)
            if (
                topic not in counts
                and not _is_grouped(topic, groups)
                and all(each in counts for each in upstream)
            ):
                counts[topic] = max((counts[each] for each in upstream), default=1)
    for topic in plan.internal_topics:
        counts.setdefault(
            topic, max((counts[each] for each in _upstream(plan, topic) if each in counts), default=1)
        )
    for group in groups:
        _require_equal(group, counts)
    return counts


def task_count(part: Plan, counts: Mapping[str, int]) -> int:
    """The number of tasks of a part: one for each partition of its widest topic."""
    return max(
        (counts[topic] for source in part.sources() for topic in source.topics if topic in counts), default=1
    )


def _topics(plan: Plan, sources: frozenset[str]) -> list[str]:
    return sorted(
        topic
        for name in sources
        if isinstance(source := plan.nodes.get(name), SourceNode)
        for topic in source.topics
    )


def _is_grouped(topic: str, groups: list[list[str]]) -> bool:
    return any(topic in group and len(group) > 1 for group in groups)


def _upstream(plan: Plan, topic: str) -> set[str]:
    """Topics read by the sub-topologies that write a topic."""
    found: set[str] = set()
    for names in subtopologies(plan):
        part = plan.only(names)
        if any(sink.topic == topic for sink in part.sinks()):
            found |= {each for source in part.sources() for each in source.topics if each != topic}
    return found


def _require_equal(group: list[str], counts: Mapping[str, int]) -> None:
    known = {topic: counts[topic] for topic in group if topic in counts}
    if len(set(known.values())) > 1:
        shown = ", ".join(f"{topic} has {count}" for topic, count in sorted(known.items()))
        raise TopologyError(
            f"joined topics need the same number of partitions, but {shown}: "
            "send one of them through repartition(Repartitioned.as_(...).with_number_of_partitions(...))"
        )
