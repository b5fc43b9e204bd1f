"""What a cluster does, as the protocol tells it: two readings some time apart make rates.

Any cluster that speaks the protocol can be read. How long requests take only brokers' metrics tell, and only
Ottla's brokers say where those are.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from ottla.client.admin.configs import describe_configs
from ottla.client.admin.groups import CONSUMER_PROTOCOL, committed_offsets_of, list_groups
from ottla.client.admin.log_dirs import describe_log_dirs
from ottla.client.admin.share_groups import is_share, shared_offsets_of
from ottla.client.admin.topics import Partition, PartitionState, list_offsets, list_topics
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.config.listeners import ANY_HOST
from ottla.wire.errors import KafkaError

_BROKER = 4
_LATEST = -1
_SCRAPE_SECONDS = 5.0
_P99 = re.compile(
    r'^kafka_network_requestmetrics_totaltimems\{request="(\w+)",quantile="0.99"\} (\S+)$', re.MULTILINE
)


class SlowRequest(NamedTuple):
    request: str
    broker: str
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Reading:
    at: float
    """Seconds on a clock that never goes back."""
    controller: int
    brokers: Mapping[int, str]
    """Addresses by id."""
    states: Mapping[Partition, PartitionState]
    ends: Mapping[Partition, int]
    sizes: Mapping[int, Mapping[Partition, int]]
    """Bytes of replicas, by broker. Who does not answer is missing."""
    committed: Mapping[str, Mapping[Partition, int]]
    """Of share groups, where what they are done with ends."""
    members_of: Mapping[str, str]
    """States of groups."""
    slow: Sequence[SlowRequest] = field(default=())


class TopicRate(NamedTuple):
    topic: str
    records: float
    bytes: float
    size_bytes: int
    partitions: int


class GroupLag(NamedTuple):
    group: str
    state: str
    lag: int
    records: float
    """Read per second."""


class BrokerLoad(NamedTuple):
    id: int
    address: str
    is_controller: bool
    leads: int
    replicas: int
    lagging: int
    """Partitions that it leads and that have replicas which are not in sync."""
    size_bytes: int | None


async def read(cluster: ClusterClient, at: float) -> Reading:
    info = await cluster.cluster()
    topics = await list_topics(cluster)
    states = {
        Partition(topic.name, partition.number): partition
        for topic in topics.values()
        for partition in topic.partitions
    }
    led = {partition: _LATEST for partition, state in states.items() if state.leader >= 0}
    ends = {
        partition: found.offset
        for partition, found in (await list_offsets(cluster, led)).items()
        if not isinstance(found, KafkaError)
    }
    sizes: dict[int, dict[Partition, int]] = {}
    for broker in info.brokers:
        try:
            found_dirs = await describe_log_dirs(cluster, broker)
        except (KafkaError, ClusterUnreachable, PeerUnusable):
            continue
        sizes[broker] = {
            replica.partition: replica.size_bytes
            for directory in found_dirs
            for replica in directory.replicas
            if not replica.is_future
        }
    listed = await list_groups(cluster, every_kind=True)
    shared = [group for group in listed if is_share(group)]
    groups = [group for group in listed if group.protocol in {CONSUMER_PROTOCOL, ""} or is_share(group)]
    committed = await committed_offsets_of(cluster, [group for group in groups if not is_share(group)])
    done_before = await shared_offsets_of(cluster, shared)
    return Reading(
        at,
        info.controller_id,
        {node.id: node.address for node in info.brokers.values()},
        states,
        ends,
        sizes,
        {
            group: {partition: found.offset for partition, found in offsets.items()}
            for group, offsets in committed.items()
        }
        | {
            group: {partition: at.start for partition, at in offsets.items() if at.start is not None}
            for group, offsets in done_before.items()
        },
        {group.id: group.state for group in groups},
    )


async def metrics_urls(cluster: ClusterClient) -> dict[str, str]:
    """Where brokers say that their metrics are, by broker. Others than Ottla's say nothing."""
    found: dict[str, str] = {}
    for node in (await cluster.cluster()).brokers.values():
        name = str(node.id)
        try:
            settings = (await describe_configs(cluster, _BROKER, [name], node=node.id))[name]
        except (KafkaError, ClusterUnreachable, PeerUnusable):
            continue
        values = {setting.name: setting.value or "" for setting in settings}
        host, _, port = values.get("ottla.metrics.listener", "").rpartition(":")
        if port and port != "0":
            scheme = "https" if values.get("ottla.metrics.tls.certificate.file") else "http"
            found[name] = f"{scheme}://{node.host if host in {*ANY_HOST, ''} else host}:{port}/metrics"
    return found


def slow_requests(urls: Mapping[str, str]) -> list[SlowRequest]:
    """The slowest first. Metrics that cannot be read are left out."""
    found: list[SlowRequest] = []
    for broker, url in urls.items():
        try:
            if not url.startswith(("http://", "https://")):
                continue
            with urlopen(_asking(url), timeout=_SCRAPE_SECONDS) as reply:  # noqa: S310 - looked at above
                text = reply.read().decode()
        except (URLError, HTTPException, OSError, ValueError):
            continue
        found += [SlowRequest(request, broker, float(value)) for request, value in _P99.findall(text)]
    return sorted(found, key=lambda each: -each.p99_ms)


def _asking(url: str) -> Request:
    """With the user and the password that the address has."""
    parts = urlsplit(url)
    request = Request(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))  # noqa: S310 - as above
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", f"Basic {b64encode(login).decode()}")
    return request


def topic_rates(before: Reading, now: Reading) -> list[TopicRate]:
    """The busiest first."""
    seconds = max(now.at - before.at, 1e-9)
    records: defaultdict[str, int] = defaultdict(int)
    grown: defaultdict[str, int] = defaultdict(int)
    sizes: defaultdict[str, int] = defaultdict(int)
    partitions: defaultdict[str, int] = defaultdict(int)
    for partition, state in now.states.items():
        topic = partition.topic
        partitions[topic] += 1
        end = now.ends.get(partition, 0)
        records[topic] += max(end - before.ends.get(partition, end), 0)
        size = now.sizes.get(state.leader, {}).get(partition, 0)
        sizes[topic] += size
        grown[topic] += max(size - before.sizes.get(state.leader, {}).get(partition, size), 0)
    rates = [
        TopicRate(topic, records[topic] / seconds, grown[topic] / seconds, sizes[topic], count)
        for topic, count in partitions.items()
    ]
    return sorted(rates, key=lambda each: (-each.records, -each.bytes, -each.size_bytes, each.topic))


def group_lags(before: Reading, now: Reading) -> list[GroupLag]:
    """Those that lag most first."""
    seconds = max(now.at - before.at, 1e-9)
    lags = []
    for group, state in now.members_of.items():
        offsets = now.committed.get(group, {})
        lag = sum(
            max(now.ends[partition] - offset, 0)
            for partition, offset in offsets.items()
            if partition in now.ends
        )
        earlier = before.committed.get(group, {})
        read = sum(max(offset - earlier.get(partition, offset), 0) for partition, offset in offsets.items())
        lags.append(GroupLag(group, state, lag, read / seconds))
    return sorted(lags, key=lambda each: (-each.lag, each.group))


def broker_loads(now: Reading) -> list[BrokerLoad]:
    states = now.states.values()
    return [
        BrokerLoad(
            broker,
            address,
            broker == now.controller,
            sum(state.leader == broker for state in states),
            sum(broker in state.replicas for state in states),
            sum(state.leader == broker and len(state.isr) < len(state.replicas) for state in states),
            sum(now.sizes[broker].values()) if broker in now.sizes else None,
        )
        for broker, address in sorted(now.brokers.items())
    ]


def without_leader(states: Iterable[PartitionState]) -> int:
    return sum(state.leader < 0 for state in states)
