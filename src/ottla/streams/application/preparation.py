"""Before an application starts: what it finds on the cluster and beside its checkpoints, and what follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.client.admin.topics import delete_topics
from ottla.client.cluster import EARLIEST, LATEST
from ottla.client.transaction import Transactions
from ottla.spark.connection import Connection
from ottla.spark.positions import Offsets
from ottla.streams.application.handing_on import different_offsets, handed_on, handovers, joined
from ottla.streams.application.lag import committed, ends_of
from ottla.streams.application.manifest import NAME, Generation, Manifest, StateDirectory, from_text
from ottla.streams.application.shapes import QueryShape, shape_of
from ottla.streams.application.upgrade import (
    Action,
    Decision,
    Losses,
    decide,
    to_keep_tasks,
    to_route_by_key,
    to_run_in_tasks,
)
from ottla.streams.errors import StreamsError
from ottla.streams.on_spark.cluster_topics import existing_partitions
from ottla.streams.on_spark.query_plan import NO_WISHES, Query, Wishes, compile_plan
from ottla.streams.plan.partitions import partition_counts
from ottla.streams.plan.plan import Plan
from ottla.streams.state.spec import StoreSpec

logger = logging.getLogger("ottla.streams")

_DELETION_S = 30.0
_LOOK_S = 0.05


def query_name(application_id: str, label: str) -> str:
    """The transactional id and group of a query. No application id can have a colon in it."""
    return f"{application_id}:{label}"


@dataclass(frozen=True, slots=True)
class Preparation:
    """What an application will do when it starts."""

    application_id: str
    plan: Plan
    counts: Mapping[str, int]
    queries: tuple[Query, ...]
    shapes: Mapping[str, QueryShape]
    former: Mapping[str, Generation]
    decisions: tuple[Decision, ...]
    # Stores whose changelog does not exist, because they are new or it was deleted.
    without_changelog: frozenset[str] = frozenset()
    # Where queries begin that take over topics from others.
    handed_on: Mapping[str, Offsets] = field(default_factory=dict)

    def unnamed_stores(self) -> list[str]:
        return sorted(
            name
            for shape in self.shapes.values()
            for name, store in shape.stores.items()
            if not store.is_named
        )

    def refuse(self) -> None:
        """Raises what keeps the application from starting."""
        refused = [each for each in self.decisions if each.action is Action.REFUSED]
        if refused:
            raise StreamsError(
                "\n".join(f"{query_name(self.application_id, each.label)}: {each.text}" for each in refused)
            )

    def empty_changelogs(self, connection: Connection) -> None:
        """Delete those of stores that begin empty: an entry from before would come back with the next
        rebuild, maybe in another format."""
        changelogs = self.plan.changelogs(self.application_id)
        emptied = {name for decision in self.decisions for name in decision.emptied}
        wanted = {changelogs[name] for name in emptied if name in changelogs}
        begins = connection.run(ends_of(connection.cluster, wanted, EARLIEST))
        ends = connection.run(ends_of(connection.cluster, wanted))
        filled = sorted({place[0] for place, end in ends.items() if end > begins.get(place, 0)})
        if not filled:
            return
        logger.warning("deleting %s: the stores begin empty", ", ".join(filled))
        connection.run(delete_topics(connection.cluster, filled))
        deadline_s = time.monotonic() + _DELETION_S
        while connection.run(connection.cluster.topics(filled)):
            if time.monotonic() > deadline_s:
                raise StreamsError(f"{', '.join(filled)} could not be deleted in {_DELETION_S:g} s")
            time.sleep(_LOOK_S)

    def generations(
        self,
        connection: Connection,
        directory: StateDirectory,
        move: Callable[[Mapping[str, StoreSpec], int], None],
    ) -> Manifest:
        """How every query begins. Shuts out whoever may still run those that begin anew.

        `move` brings what is in the changelogs of stores, by topic, to the partitions of so many tasks.
        """
        topics = {query.label: query for query in self.queries}
        manifest = {
            label: each
            for label, each in self.former.items()
            if all(s.is_named for s in each.shape.stores.values())
        }
        for decision in self.decisions:
            label = decision.label
            if label not in topics:
                continue
            if decision.continues:
                manifest[label] = self._continued(label)
                continue
            for former in decision.formers:
                if former not in topics:
                    manifest.pop(former, None)
            begin = self._begin(connection, decision, topics[label])
            if decision.moves and decision.restored:
                changelogs = self.plan.changelogs(self.application_id)
                stores = {changelogs[name]: self.plan.stores[name] for name in decision.restored}
                move(stores, self.shapes[label].tasks)
            restored = self._changelog_ends(connection, decision)
            number = 0
            while not directory.is_empty(f"{label}/{number}"):
                number += 1
            manifest[label] = Generation(self.shapes[label], number, begin, restored)
        return manifest

    def _continued(self, label: str) -> Generation:
        before = self.former[label]
        logged = {name for name, store in self.shapes[label].stores.items() if store.is_logged}
        deleted = logged & self.without_changelog
        if not deleted:
            return before
        logger.warning(
            "the changelog of %s was deleted: %s goes on from its checkpoint, but what cannot be rebuilt is "
            "lost with that",
            ", ".join(sorted(deleted)),
            label,
        )
        return replace(before, incomplete=tuple(sorted({*before.incomplete, *deleted})))

    def _begin(self, connection: Connection, decision: Decision, query: Query) -> Offsets:
        """The offsets of the groups it goes on from, or those that streams-application-reset has set."""
        cluster, handed = connection.cluster, Offsets(self.handed_on.get(query.label, {}))
        taken_over = {topic for topic, _ in handed}
        labels = decision.formers or (query.label,)
        offsets: dict[str, Offsets] = {}
        for label in labels:
            name = query_name(self.application_id, label)
            if decision.formers:
                connection.run(Transactions(cluster, name).begin())
            offsets[label] = {
                place: found.offset
                for place, found in connection.run(committed(cluster, name)).items()
                if place[0] not in taken_over
            }
        shapes = {
            label: self.former[label].shape if label in self.former else self.shapes[label]
            for label in labels
        }
        begin, unequal = joined(offsets, shapes)
        if unequal:
            raise StreamsError(different_offsets(labels, unequal))
        return handed | begin

    def _changelog_ends(self, connection: Connection, decision: Decision) -> Offsets:
        changelogs = self.plan.changelogs(self.application_id)
        topics = connection.run(connection.cluster.topics(changelogs[store] for store in decision.restored))
        places = {(name, index): LATEST for name, topic in topics.items() for index in topic.partitions}
        ends = connection.run(connection.cluster.list_offsets(places, read_committed=True))
        return {place: end.offset for place, end in ends.items()}


def prepare(
    plan: Plan,
    application_id: str,
    connection: Connection,
    directory: StateDirectory,
    *,
    discard: bool,
    wishes: Wishes = NO_WISHES,
) -> Preparation:
    """Asks the cluster, and changes nothing."""
    existing = existing_partitions(connection, plan)
    counts = partition_counts(plan, existing)
    text = directory.read(NAME)
    former = {} if text is None else from_text(text, f"{directory.location}/{NAME}")
    former_shapes = {label: each.shape for label, each in former.items()}
    queries, shapes = _compiled(plan, counts, wishes)
    offsets = {
        label: _marked_offsets(connection, query_name(application_id, label))
        for label in shapes.keys() | former.keys()
    }
    unknown = {label for label in shapes if label not in former and offsets[label]}
    without_changelog = _without_changelog(connection, plan, application_id)
    incomplete = {name for each in former.values() for name in each.incomplete}
    losses = Losses(
        frozenset(
            label for label, each in former.items() if _is_gone(directory, label, each, offsets[label])
        ),
        frozenset(
            label
            for label, each in former.items()
            if not offsets[label] and not directory.is_empty(f"{label}/{each.number}/commits")
        ),
        without_changelog | incomplete,
    )
    kept = _kept_counts(plan, queries, to_keep_tasks(shapes, former_shapes, losses))
    if kept:
        counts = partition_counts(plan, existing, kept)
        queries, shapes = _compiled(plan, counts, wishes)
    by_key = to_route_by_key(shapes, former_shapes, unknown)
    in_tasks = to_run_in_tasks(shapes, former_shapes, unknown, losses)
    if in_tasks or by_key:
        queries, shapes = _compiled(plan, counts, wishes, in_tasks, by_key)
    decisions = decide(shapes, former_shapes, unknown, losses=losses, discard=discard)
    handed: dict[str, Offsets] = {}
    takers = handovers(queries, decisions, former_shapes)
    for at, decision in enumerate(decisions):
        handover = takers.get(decision.label)
        if handover is not None and decision.action is not Action.REFUSED:
            unread = {topic: _unread(connection, topic, offsets[label]) for label, topic in handover.left}
            decisions[at], handed[decision.label] = handed_on(
                decision, handover, offsets, unread, shapes[decision.label], discard=discard
            )
    decisions = [
        _unless_apart(each, offsets, former_shapes, handed.get(each.label, {})) for each in decisions
    ]
    return Preparation(
        application_id,
        plan,
        counts,
        tuple(queries),
        shapes,
        former,
        tuple(decisions),
        without_changelog,
        handed,
    )


def _unless_apart(
    decision: Decision,
    offsets: Mapping[str, Offsets],
    former: Mapping[str, QueryShape],
    handed: Offsets,
) -> Decision:
    """Refused where the queries that it goes on from have come to different offsets of the same topics."""
    taken_over = {topic for topic, _ in handed}
    told = {
        label: {place: offset for place, offset in offsets[label].items() if place[0] not in taken_over}
        for label in decision.formers
        if label in former
    }
    _, unequal = joined(told, former)
    if decision.action is Action.REFUSED or not unequal:
        return decision
    return replace(decision, action=Action.REFUSED, text=different_offsets(decision.formers, unequal))


def _unread(connection: Connection, topic: str, offsets: Offsets) -> int:
    """Records of a topic that a group has not come to."""
    begins = connection.run(ends_of(connection.cluster, [topic], EARLIEST))
    ends = connection.run(ends_of(connection.cluster, [topic], read_committed=True))
    return sum(end - max(begins[place], offsets.get(place, 0)) for place, end in ends.items())


def _kept_counts(plan: Plan, queries: Iterable[Query], tasks: Mapping[str, int]) -> dict[str, int]:
    """Partitions of topics that shuffles stand for, unless the program says how many it wants."""
    return {
        topic: tasks[query.label]
        for query in queries
        if query.label in tasks
        for topic in query.shuffled_topics
        if plan.internal_topics[topic].partitions is None
    }


def _compiled(
    plan: Plan,
    counts: Mapping[str, int],
    wishes: Wishes,
    in_tasks: Collection[str] = (),
    by_key: Collection[str] = (),
) -> tuple[list[Query], dict[str, QueryShape]]:
    queries = compile_plan(plan, in_tasks, by_key, wishes)
    return queries, {query.label: shape_of(query, counts) for query in queries}


def _marked_offsets(connection: Connection, group: str) -> Offsets:
    """Those that a micro-batch has committed; none where only streams-application-reset has set some."""
    found = connection.run(committed(connection.cluster, group))
    is_marked = any(each.metadata for each in found.values())
    return {place: each.offset for place, each in found.items()} if is_marked else {}


def _is_gone(directory: StateDirectory, label: str, generation: Generation, offsets: Offsets) -> bool:
    """Whether there is no checkpoint although micro-batches have gone beyond where the generation begins. Its
    group may have older offsets of what others have read since then."""
    is_beyond = any(
        offset > generation.begin.get(place, -1)
        for place, offset in offsets.items()
        if generation.shape.reads(place[0])
    )
    return is_beyond and directory.is_empty(f"{label}/{generation.number}/offsets")


def _without_changelog(connection: Connection, plan: Plan, application_id: str) -> frozenset[str]:
    changelogs = plan.changelogs(application_id)
    present = connection.run(connection.cluster.topics(changelogs.values()))
    return frozenset(name for name, topic in changelogs.items() if topic not in present)
