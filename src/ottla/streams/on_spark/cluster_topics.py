"""The topics of an application on the cluster: looks up those it reads, creates those it owns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.topics import NewTopic, add_partitions, create_topics
from ottla.spark.connection import Connection
from ottla.streams.errors import StreamsError
from ottla.streams.plan.plan import Plan
from ottla.streams.state.spec import StoreKind, StoreSpec


def existing_partitions(connection: Connection, plan: Plan) -> dict[str, int]:
    """Partitions of the topics the plan reads. Raises if one does not exist."""
    wanted = {topic for source in plan.sources() for topic in source.topics} - set(plan.internal_topics)
    found = connection.run(connection.cluster.topics(wanted))
    missing = sorted(wanted - set(found))
    if missing:
        raise StreamsError(
            f"the topic {missing[0]} does not exist: create it first, for example with "
            f"kafka-topics --create --topic {missing[0]} --partitions 4"
        )
    counts = {name: len(topic.partitions) for name, topic in found.items()}
    for source in plan.sources():
        if source.pattern is not None:
            matching = connection.run(connection.cluster.topics_matching(source.pattern))
            counts.update((name, len(topic.partitions)) for name, topic in matching.items())
    return counts


def owned_topics(
    plan: Plan,
    application_id: str,
    counts: Mapping[str, int],
    written: Iterable[str],
    tasks: Mapping[str, int],
) -> dict[str, tuple[int, dict[str, str]]]:
    """Topics the application has to have, with their partitions and settings: those repartition topics that
    are written, and the changelogs of named stores."""
    owned: dict[str, tuple[int, dict[str, str]]] = {}
    for topic in written:
        # Nothing may expire before the other sub-topology has read it.
        owned[topic] = (counts[topic], {"cleanup.policy": "delete", "retention.ms": "-1"})
    for name, topic in plan.changelogs(application_id).items():
        if name in tasks:
            owned[topic] = (tasks[name], _changelog_settings(plan.stores[name]))
    return owned


def create_missing(connection: Connection, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
    """Topics that are there get more partitions if they need them. Those that have more keep them: there are
    fewer tasks than there were, and they take what belongs to them from wherever it is."""
    present = connection.run(connection.cluster.topics(topics))
    missing = {name: topics[name] for name in sorted(topics) if name not in present}
    for name, topic in present.items():
        if len(topic.partitions) < topics[name][0]:
            connection.run(add_partitions(connection.cluster, [name], topics[name][0]))
    if not missing:
        return
    wanted = [NewTopic(name, count, settings=settings) for name, (count, settings) in missing.items()]
    connection.run(create_topics(connection.cluster, wanted))


def _changelog_settings(spec: StoreSpec) -> dict[str, str]:
    if spec.kind is StoreKind.KEY_VALUE:
        return {"cleanup.policy": "compact"}
    # A day more than the store keeps, as in Kafka Streams, for clocks that differ.
    retention_ms = min(spec.retention_ms + 86_400_000, (1 << 63) - 1)
    if spec.kind is StoreKind.VERSIONED:
        # All versions of a key are there until none is needed but the last.
        return {"cleanup.policy": "compact", "min.compaction.lag.ms": str(retention_ms)}
    return {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}
