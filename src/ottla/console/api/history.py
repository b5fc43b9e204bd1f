"""What was measured in the last hour, for charts: a value for each time, none where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.history import WHOLE


@dataclass(frozen=True, slots=True)
class WholeHistory:
    pass


@dataclass(frozen=True, slots=True)
class TopicHistory:
    topic: Annotated[str, "its name"]


@dataclass(frozen=True, slots=True)
class GroupHistory:
    group: Annotated[str, "its name"]


@endpoint("GET", "/history", "Records and bytes per second of all topics, the cluster's own left out")
async def cluster_history(cluster: Cluster, asked: WholeHistory) -> Any:
    return _traffic(cluster, WHOLE)


@endpoint("GET", "/topics/{topic}/history", "Records and bytes per second of a topic")
async def topic_history(cluster: Cluster, asked: TopicHistory) -> Any:
    return _traffic(cluster, asked.topic)


@endpoint("GET", "/groups/{group}/history", "How far a group was behind, and records per second it read")
async def group_history(cluster: Cluster, asked: GroupHistory) -> Any:
    history = cluster.history
    return {
        "times": history.times_ms,
        "lag": history.values("lag", asked.group),
        "recordsOut": history.values("groupOut", asked.group),
    }


def _traffic(cluster: Cluster, name: str) -> dict[str, Any]:
    history = cluster.history
    return {
        "times": history.times_ms,
        "recordsIn": history.values("recordsIn", name),
        "recordsOut": history.values("recordsOut", name),
        "bytesIn": history.values("bytesIn", name),
    }
