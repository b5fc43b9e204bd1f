"""Where queries begin when a repartition topic comes or goes between two versions of a program.

What a query shuffled by itself, another one may write to a topic now, because something stateful stands in
between, or topics are to wait for each other. The other one must not begin anew then: whatever it writes
again would be counted again. And where a shuffle takes the place of a topic, the query that reads what the
other one has read must begin where that has come to, and the topic has to be worked off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.spark.positions import Offsets
from ottla.streams.application.shapes import QueryShape
from ottla.streams.application.upgrade import Action, Decision
from ottla.streams.on_spark.query_plan import Query, label_of
from ottla.streams.plan.plan import SinkNode


@dataclass(slots=True)
class Handover:
    """What a query takes over."""

    # Queries that have read its topics until now.
    givers: list[str] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    # Topics it reads no longer, and the query whose group shows how far they were read.
    left: list[tuple[str, str]] = field(default_factory=list)
    # Whether it has other work as well, which its own offsets tell the progress of.
    has_own_work: bool = False


def handovers(
    queries: Sequence[Query], decisions: Iterable[Decision], former: Mapping[str, QueryShape]
) -> dict[str, Handover]:
    """By the label of the query that takes over."""
    formers = {decision.label: decision.formers for decision in decisions}
    found: dict[str, Handover] = {}
    for query in queries:
        internal = {topic for source in query.plan.sources() for topic in source.topics}
        for topic in sorted(internal & set(query.plan.internal_topics)):
            for before in formers.get(query.label, ()):
                shape = former.get(before)
                if shape is None or topic not in shape.topics:
                    continue
                was_read = any(topic in names for names in shape.subscriptions)
                if was_read != (topic in query.shuffled_topics):
                    continue
                if was_read:
                    _from_writers(query, topic, before, former, found.setdefault(query.label, Handover()))
                else:
                    _to_writers(queries, topic, before, found)
    return found


def _from_writers(
    query: Query, topic: str, before: str, former: Mapping[str, QueryShape], handover: Handover
) -> None:
    handover.left.append((before, topic))
    for part in query.upstream:
        label = label_of(part)
        if label in former and topic in {sink.topic for sink in part.sinks()}:
            handover.givers.append(label)
            handover.topics |= {name for source in part.sources() for name in source.topics}


def _to_writers(queries: Sequence[Query], topic: str, before: str, found: dict[str, Handover]) -> None:
    for writer in queries:
        if topic in {sink.topic for sink in writer.plan.sinks()}:
            handover = found.setdefault(writer.label, Handover())
            handover.givers.append(before)
            handover.topics |= set(writer.topics)
            ends = [node for name, node in writer.plan.nodes.items() if not writer.plan.children.get(name)]
            handover.has_own_work = not all(
                isinstance(node, SinkNode) and node.topic in writer.plan.internal_topics for node in ends
            )


def joined(
    offsets: Mapping[str, Offsets], former: Mapping[str, QueryShape]
) -> tuple[Offsets, set[tuple[str, int]]]:
    """Where a query begins that goes on from those with the given offsets, by label, and the partitions of
    which they tell different ones.

    A group still has offsets of what its query no longer reads. They count where nobody knows it better.
    """
    begin: Offsets = {}
    unequal = set()
    for label, told in offsets.items():
        for place, offset in told.items():
            if former[label].reads(place[0]) and begin.setdefault(place, offset) != offset:
                unequal.add(place)
    for told in offsets.values():
        for place, offset in told.items():
            begin.setdefault(place, offset)
    return begin, unequal


def different_offsets(labels: Iterable[str], places: Iterable[tuple[str, int]]) -> str:
    """Said before a query begins that cannot go on from all of them."""
    topic, partition = min(places)
    return (
        f"{' and '.join(labels)} have come to different offsets of {topic}-{partition}: let the version from "
        "before catch up first (--once)"
    )


def handed_on(
    decision: Decision,
    handover: Handover,
    offsets: Mapping[str, Offsets],
    unread: Mapping[str, int],
    shape: QueryShape,
    *,
    discard: bool,
) -> tuple[Decision, Offsets]:
    """The decision with what the handover makes of it, and where the query begins to read.

    `offsets` are those of groups by label, `unread` the records of topics that are left behind.
    """
    readers = [*handover.givers, *([decision.label] if handover.has_own_work and decision.formers else [])]
    told = [
        {place: offset for place, offset in offsets.get(label, {}).items() if place[0] in handover.topics}
        for label in readers
    ]
    begin = told[0] if told else {}
    problems = []
    if any(each != begin for each in told):
        problems.append(f"{' and '.join(readers)} have come to different offsets of what it reads")
    problems += [
        f"{topic} has {unread[topic]} records that were not worked on and would not be read any more"
        for _, topic in handover.left
        if unread.get(topic)
    ]
    if problems and not discard:
        text = (
            f"{'; '.join(problems)}: let the version from before catch up first (--once), or give up what it "
            "has not done (--upgrade discard)"
        )
        return replace(decision, action=Action.REFUSED, text=text), begin
    if decision.label in readers or handover.left:
        return decision, begin
    text = f"begins where {' and '.join(handover.givers)} has come to"
    # Whatever of this name there was before is not from where it begins.
    return Decision(decision.label, Action.NEW, text, emptied=tuple(shape.stores)), begin
