"""Where replicas are and who leads: moved between brokers and directories, elected, and brokers given up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client import fetch
from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable, error_for
from ottla.client.fetch import Fetched
from ottla.client.peer import PeerLost
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

PREFERRED: Final = 0
UNCLEAN: Final = 1


class Reassignment(NamedTuple):
    """Of a partition that is on its way; `replicas` are those it has now, the ones being added among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    broker: int
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}-{self.broker}"


class ReplicaDirectory(NamedTuple):
    current: str | None
    """None where no directory that the broker can use has it."""
    future: str | None
    """Where it is being moved to."""


async def list_reassignments(
    cluster: ClusterClient, partitions: Collection[Partition] | None = None
) -> dict[Partition, Reassignment]:
    """Those under way, of some partitions or of all."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers} for topic, numbers in _by_topic(partitions).items()
        ]
    answer = await cluster.ask(
        None,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"topics": topics, "timeout": cluster.timeouts.request_ms},
        about="",
    )
    found = {
        Partition(topic.name, item.partition_index): Reassignment(
            item.replicas, item.adding_replicas, item.removing_replicas
        )
        for topic in answer.topics
        for item in topic.partitions
    }
    return dict(sorted(found.items()))


async def reassign(
    cluster: ClusterClient,
    targets: Mapping[Partition, Sequence[int] | None],
    *,
    may_change_factor: bool = True,
) -> dict[Partition, KafkaError]:
    """Begins to move partitions to new replicas, or for None calls off the move under way; the refusals."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, "replicas": _listed(targets[Partition(topic, number)])}
                for number in numbers
            ],
        }
        for topic, numbers in _by_topic(targets).items()
    ]
    answer = await cluster.ask(
        None,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "topics": topics,
            "timeout": cluster.timeouts.request_ms,
            "allow_replication_factor_change": may_change_factor,
        },
        about="",
    )
    return {
        Partition(topic.name, item.partition_index): error_for(item.error_code, item.error_message, "")
        for topic in answer.responses
        for item in topic.partitions
        if item.error_code != ErrorCode.none
    }


async def elect_leaders(
    cluster: ClusterClient, kind: int, partitions: Collection[Partition] | None
) -> dict[Partition, KafkaError | None]:
    """What became of each partition; for all partitions (None) only those are told of that had to change."""
    topics = None
    if partitions is not None:
        topics = [{"topic": topic, "partitions": numbers} for topic, numbers in _by_topic(partitions).items()]
    answer = await cluster.ask(
        None,
        ApiKey.ELECT_LEADERS,
        {"election_type": kind, "topic_partitions": topics, "timeout": cluster.timeouts.request_ms},
        about="",
    )
    results: dict[Partition, KafkaError | None] = {}
    for topic in answer.replica_election_results:
        for item in topic.partition_result:
            failed = item.error_code != ErrorCode.none
            results[Partition(topic.topic, item.partition_id)] = (
                error_for(item.error_code, item.error_message, "") if failed else None
            )
    return dict(sorted(results.items()))


async def replica_directories(
    cluster: ClusterClient, replicas: Collection[Replica]
) -> dict[Replica, ReplicaDirectory]:
    """Of replicas on brokers that are up; others are left out."""
    live = (await cluster.cluster()).brokers
    found: dict[Replica, ReplicaDirectory] = {}
    for broker, wanted in _by_broker(replicas).items():
        if broker not in live:
            continue
        partitions = _by_topic(Partition(each.topic, each.number) for each in wanted)
        answer = await cluster.ask(
            broker,
            ApiKey.DESCRIBE_LOG_DIRS,
            {"topics": [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()]},
            about=f"broker {broker}",
        )
        found.update({each: ReplicaDirectory(None, None) for each in wanted})
        for directory in answer.results:
            for topic in directory.topics:
                for item in topic.partitions:
                    replica = Replica(broker, topic.name, item.partition_index)
                    if replica in found:
                        change = {"future" if item.is_future_key else "current": directory.log_dir}
                        found[replica] = found[replica]._replace(**change)
    return found


async def move_replicas(
    cluster: ClusterClient, directories: Mapping[Replica, str]
) -> dict[Replica, KafkaError]:
    """Begins to move replicas to directories of their brokers; the refusals."""
    refused: dict[Replica, KafkaError] = {}
    for broker, replicas in _by_broker(directories).items():
        by_path: dict[str, list[Partition]] = defaultdict(list)
        for replica in replicas:
            by_path[directories[replica]].append(Partition(replica.topic, replica.number))
        dirs = [
            {
                "path": path,
                "topics": [
                    {"name": topic, "partitions": numbers} for topic, numbers in _by_topic(partitions).items()
                ],
            }
            for path, partitions in by_path.items()
        ]
        answer = await cluster.ask(
            broker, ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs}, about=f"broker {broker}"
        )
        for topic in answer.results:
            for item in topic.partitions:
                if item.error_code != ErrorCode.none:
                    replica = Replica(broker, topic.topic_name, item.partition_index)
                    refused[replica] = error_for(item.error_code, None, str(replica))
    return refused


async def unregister_broker(cluster: ClusterClient, broker: int) -> None:
    """One that is gone for good; it has to be down."""
    await cluster.ask(None, ApiKey.UNREGISTER_BROKER, {"broker_id": broker}, about="")


async def fetch_replicas(
    cluster: ClusterClient,
    wanted: Mapping[int, Mapping[Partition, int]],
    *,
    max_wait_ms: int,
    partition_max_bytes: int,
) -> dict[int, dict[Partition, Fetched]]:
    """What each broker's replicas have from offsets on, led by it or not; brokers that are down none."""

    async def of_broker(broker: int, offsets: Mapping[Partition, int]) -> dict[Partition, Fetched]:
        topics: dict[str, list[fetch.FetchFrom]] = defaultdict(list)
        for partition, offset in offsets.items():
            topics[partition.topic].append(fetch.FetchFrom(partition.number, offset))
        body = fetch.encode(
            topics,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=partition_max_bytes * len(offsets),
            partition_max_bytes=partition_max_bytes,
            read_committed=False,
            replica_id=fetch.DEBUGGER,
        )
        try:
            peer = await cluster.node(broker)
            peer.version(ApiKey.FETCH, fetch.VERSION)
            async with asyncio.timeout(cluster.timeouts.request_s):
                answer = await peer.ask_raw(ApiKey.FETCH, fetch.VERSION, [body])
        except (KafkaError, PeerLost, ClusterUnreachable, TimeoutError):
            # As long as it would have waited for records, or the next attempt would come at once.
            await asyncio.sleep(max_wait_ms / 1000)
            return {}
        _, rows = fetch.decode(answer)
        return {
            Partition(*place): fetched
            for place, fetched in rows.items()
            if fetched.error_code == ErrorCode.none
        }

    answers = await asyncio.gather(*(of_broker(broker, offsets) for broker, offsets in wanted.items()))
    return dict(zip(wanted, answers, strict=True))


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(set(partitions)):
        grouped[partition.topic].append(partition.number)
    return grouped


def _by_broker(replicas: Iterable[Replica]) -> dict[int, list[Replica]]:
    grouped: dict[int, list[Replica]] = defaultdict(list)
    for replica in sorted(replicas):
        grouped[replica.broker].append(replica)
    return grouped
