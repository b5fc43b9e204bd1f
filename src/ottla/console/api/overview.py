"""The cluster as a whole, and its brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

from ottla.client.admin import configs
from ottla.client.admin.quorum import describe_quorum
from ottla.console.api.settings import changed_settings, shown_settings
from ottla.console.clusters import Cluster, Topics
from ottla.console.endpoints import endpoint
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.wire.api import ApiKey

_UNHEALTHY_MAX = 100


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class OneBroker:
    broker: Annotated[int, "the id of a broker"]


@dataclass(frozen=True, slots=True)
class AlterBroker:
    broker: Annotated[str, "the id of a broker; `all` for the defaults of the cluster"]
    set: Annotated[dict[str, str], "new values by name"] = field(default_factory=dict)
    delete: Annotated[list[str], "names of settings that get their defaults back"] = field(
        default_factory=list
    )


@endpoint("GET", "/overview", "Brokers, the quorum, and what is wrong")
async def overview(cluster: Cluster, asked: Nothing) -> Any:
    topics, sizes, quorum, features = await asyncio.gather(
        cluster.topics.get(), cluster.sizes.get(), _quorum(cluster), _features(cluster)
    )
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    for topic in topics.by_name.values():
        for partition in topic.partitions:
            leads[partition.leader] += 1
            holds.update(partition.replicas)
    brokers = [
        {
            "id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "leads": leads[broker.id],
            "replicas": holds[broker.id],
            "sizeBytes": sizes.brokers.get(broker.id, 0),
            "directories": [
                {
                    "path": found.path,
                    "totalBytes": found.total_bytes,
                    "usableBytes": found.usable_bytes,
                    "error": None if not found.error_code else found.error_code.name.upper(),
                }
                for found in sizes.directories.get(broker.id, ())
            ],
        }
        for broker in topics.info.brokers.values()
    ]
    return {
        "cluster": cluster.name,
        "clusterId": topics.info.cluster_id,
        # Brokers of a quorum name any of them, who hands on what only the controller can do.
        "controller": quorum.get("leader", topics.info.controller_id),
        "topics": len(topics.by_name),
        "partitions": sum(len(topic.partitions) for topic in topics.by_name.values()),
        "brokers": brokers,
        "quorum": quorum,
        "features": features,
        **_unhealthy(topics),
    }


def _unhealthy(topics: Topics) -> dict[str, Any]:
    offline, under_replicated = [], []
    for topic in topics.by_name.values():
        for partition in topic.partitions:
            if partition.leader < 0:
                offline.append((topic.name, partition))
            elif len(partition.isr) < len(partition.replicas):
                under_replicated.append((topic.name, partition))
    return {
        "offlinePartitions": len(offline),
        "underReplicatedPartitions": len(under_replicated),
        "unhealthy": [
            {
                "topic": name,
                "partition": partition.number,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
            }
            for name, partition in (*offline, *under_replicated)[:_UNHEALTHY_MAX]
        ],
    }


async def _quorum(cluster: Cluster) -> dict[str, Any]:
    try:
        _, found = await describe_quorum(cluster.client)
    except EXPECTED as error:
        return {"error": problem_of(error).text}
    newest = max((voter.log_end_offset for voter in found.current_voters), default=-1)

    def node(replica: Any) -> dict[str, Any]:
        return {
            "id": replica.replica_id,
            "endOffset": replica.log_end_offset,
            "lag": max(newest - replica.log_end_offset, 0) if replica.log_end_offset >= 0 else None,
        }

    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "highWatermark": found.high_watermark,
        "voters": [node(replica) for replica in found.current_voters],
        "observers": [node(replica) for replica in found.observers],
    }


async def _features(cluster: Cluster) -> dict[str, int]:
    try:
        answer = await cluster.client.ask(
            None,
            ApiKey.API_VERSIONS,
            {"client_software_name": "ottla-console", "client_software_version": "1"},
            about="",
        )
    except EXPECTED:
        return {}
    return {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}


@endpoint("GET", "/brokers/{broker}", "One broker: its settings, with their sources, and its directories")
async def broker(cluster: Cluster, asked: OneBroker) -> Any:
    found = [each for each in (await overview(cluster, Nothing()))["brokers"] if each["id"] == asked.broker]
    if not found:
        raise Refused(f"there is no broker {asked.broker} in the cluster", 404)
    return {**found[0], "settings": await shown_settings(cluster, configs.BROKER, str(asked.broker))}


@endpoint("PATCH", "/brokers/{broker}/settings", "Change settings of a broker, or the defaults of all")
async def alter_broker(cluster: Cluster, asked: AlterBroker) -> Any:
    if asked.broker != "all" and not asked.broker.isdecimal():
        raise Refused(f"broker is {asked.broker!r}; it must be a number, or all")
    name = "" if asked.broker == "all" else asked.broker
    return await changed_settings(cluster, configs.BROKER, name, asked.set, asked.delete)


ENDPOINTS = (overview, broker, alter_broker)
