"""`mm2.properties`: clusters, what goes from which to which, and how; under MirrorMaker 2's names.

`topics = …` holds for all, `A->B.topics = …` for what goes from A to B. `A.security.protocol = …` is for all
connections to A, `A.consumer.…`, `A.producer.…` and `A.admin.…` for those that read, write and administer
there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ottla.client.connections import parse_addresses
from ottla.mirror.errors import SettingError
from ottla.mirror.policy import SEPARATOR, ReplicationPolicy

_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_ROLES: Final = ("consumer.", "producer.", "admin.")
# Settings of clients that may stand without a cluster's name before them.
_FOR_CLIENTS: Final = ("security.", "sasl.", "ssl.")
_POLICIES: Final = {"DefaultReplicationPolicy": False, "IdentityReplicationPolicy": True}
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
# Classes that would have to be loaded from Java: ours do what the defaults of MirrorMaker do.
_PLUGGABLE: Final = {
    "topic.filter.class": "DefaultTopicFilter",
    "group.filter.class": "DefaultGroupFilter",
    "config.property.filter.class": "DefaultConfigPropertyFilter",
}
SLOTS_DEFAULT: Final = 4
_ALIKE: Final = 0.8
_OF_WORKERS: Final = ("config.storage.", "status.storage.", "offset.storage.")
_FACTOR_MAX: Final = 2**15 - 1
_SLOTS_MAX: Final = 10_000
_INTERVAL_S_MAX: Final = 365 * 24 * 3600
_MS_MAX: Final = 24 * 3600 * 1000
# A broker aborts transactions of the mirror after a minute, and they have to end well before that.
_TRANSACTION_S_MAX: Final = 20.0


class Filter(NamedTuple):
    """Names and regular expressions; what is excluded is so even if it is included, too."""

    include: re.Pattern[str] | None
    exclude: re.Pattern[str] | None

    def takes(self, name: str) -> bool:
        return bool(
            self.include is not None
            and self.include.fullmatch(name)
            and not (self.exclude is not None and self.exclude.fullmatch(name))
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    alias: str
    bootstrap_servers: str
    _properties: Mapping[str, str]

    def client(self, role: str) -> dict[str, str]:
        """Properties of clients that are `consumer`, `producer` or `admin`."""
        own = {name: value for name, value in self._properties.items() if not name.startswith(_ROLES)}
        start = f"{role}."
        return own | {
            name.removeprefix(start): value
            for name, value in self._properties.items()
            if name.startswith(start)
        }


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """From one cluster to another. Intervals are None for what is not to be done."""

    source: Cluster
    target: Cluster
    policy: ReplicationPolicy
    replicates: bool
    """If not, only heartbeats are written: whoever mirrors the other way carries them."""
    topics: Filter
    groups: Filter
    configs_exclude: re.Pattern[str] | None
    defaults_from_source: bool
    slots: int
    replication_factor: int | None
    """None: two, or as many as there are brokers."""
    internal_replication_factors: Mapping[str, int | None]
    refresh_topics_s: float | None
    refresh_groups_s: float | None
    sync_configs_s: float | None
    sync_acls_s: float | None
    sync_groups_s: float | None
    emit_heartbeats_s: float | None
    emit_checkpoints_s: float | None
    emit_offset_syncs: bool
    replicates_heartbeats: bool
    offset_syncs_in_target: bool
    starts_at_end: bool
    """Whether a partition that is new to the mirror begins with what comes next."""
    commit_interval_s: float
    session_timeout_ms: int
    ways_back: Sequence[Sequence[Filter]] = ()
    """Of flows that lead from the target to the source again, where names do not tell where a topic was: what
    all of one way take would go round for ever."""

    @property
    def name(self) -> str:
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def group(self) -> str:
        """Of the processes that share the work, in the target. MirrorMaker's workers have the same, so that
        both cannot run at once."""
        return f"{self.source.alias}-mm2"

    @property
    def positions_topic(self) -> str:
        return f"mm2-offsets.{self.source.alias}.internal"

    @property
    def offset_syncs_topic(self) -> str:
        alias = self.source.alias if self.offset_syncs_in_target else self.target.alias
        return self.policy.offset_syncs_topic(alias)

    @property
    def checkpoints_topic(self) -> str:
        return self.policy.checkpoints_topic(self.source.alias)

    def takes_topic(self, topic: str) -> bool:
        is_wanted = self.topics.takes(topic) or (
            self.replicates_heartbeats and self.policy.is_heartbeats(topic)
        )
        return (
            is_wanted
            and not self.policy.is_internal(topic)
            and not self.policy.has_passed(topic, self.source.alias, self.target.alias)
            and not self.would_come_back(topic)
        )

    def would_come_back(self, topic: str) -> bool:
        is_taken = self.topics.takes(topic) and not self.policy.is_heartbeats(topic)
        return is_taken and any(all(topics.takes(topic) for topics in way) for way in self.ways_back)

    def remote(self, topic: str) -> str:
        return self.policy.remote_topic(self.source.alias, topic)


def read_settings(properties: Mapping[str, str]) -> list[FlowSettings]:
    """All that is to be done, in the order of the clusters. Raises SettingError."""
    aliases = _listed(properties.get("clusters", ""))
    if len(aliases) < 2:
        raise SettingError("clusters: name at least two, such as clusters = primary, backup")
    if len(set(aliases)) < len(aliases):
        raise SettingError(f"clusters={properties['clusters']}: a cluster is named twice")
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            raise SettingError(
                f"clusters: {alias!r} is no name for a cluster: use letters, digits, and . _ -"
            )
    _check_flows(properties, aliases)
    clusters = {alias: _cluster(properties, alias) for alias in aliases}
    flows = [
        _flow(_Lookup(properties, source, target), clusters[source], clusters[target])
        for source in aliases
        for target in aliases
        if source != target
    ]
    if not any(flow.replicates for flow in flows):
        first, second, *_ = aliases
        raise SettingError(f"nothing is to be mirrored: set {first}->{second}.enabled = true")
    flows = [replace(flow, ways_back=_ways_back(flow, flows)) for flow in flows]
    return [flow for flow in flows if flow.replicates or flow.emit_heartbeats_s is not None]


def ignored_settings(properties: Mapping[str, str]) -> list[str]:
    """Settings that change nothing, in words: of one way those that are not known, of all those that look
    like a slip of the pen. MirrorMaker's files have settings of its workers, too, which mean nothing here."""
    flow, *_ = read_settings(properties)
    found = _Lookup(properties, flow.source.alias, flow.target.alias)
    _flow(found, flow.source, flow.target)
    aliases = _listed(properties["clusters"])
    starts = [f"{source}->{target}." for source in aliases for target in aliases]
    told = []
    for name in properties:
        start = next((each for each in starts if name.startswith(each)), "")
        own = name.removeprefix(start)
        if own.startswith(_OF_WORKERS):
            continue
        alike = difflib.get_close_matches(own, sorted(found.asked), n=1, cutoff=_ALIKE)
        if own not in found.asked and (start or alike):
            told.append(
                f"{name} is ignored: there is no such setting" + "".join(f"; is it {each}?" for each in alike)
            )
    return told


def _check_flows(properties: Mapping[str, str], aliases: Sequence[str]) -> None:
    for name in properties:
        source, arrow, rest = name.partition("->")
        if arrow:
            target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), None)
            if source not in aliases or target is None or source == target:
                raise SettingError(f"{name}: not between two of the clusters {', '.join(aliases)}")


def _cluster(properties: Mapping[str, str], alias: str) -> Cluster:
    own = _prefixed(properties, f"{alias}.")
    shared = {name: value for name, value in properties.items() if name.startswith(_FOR_CLIENTS)}
    servers = own.get("bootstrap.servers")
    if not servers:
        raise SettingError(f"{alias}.bootstrap.servers is missing: host:port of brokers of {alias}")
    try:
        parse_addresses(servers)
    except ValueError as error:
        raise SettingError(f"{alias}.{error}") from None
    return Cluster(alias, servers, shared | own)


def _flow(found: _Lookup, source: Cluster, target: Cluster) -> FlowSettings:
    for name, usual in _PLUGGABLE.items():
        if found.text(name, usual).removeprefix(_PACKAGE) != usual:
            raise SettingError(f"{name}: classes of Java are not run here; only {_PACKAGE}{usual} is known")
    return FlowSettings(
        source=source,
        target=target,
        policy=_policy(found),
        replicates=found.flag("enabled", default=False, is_global=False),
        topics=Filter(
            found.pattern("topics", ".*"),
            found.pattern("topics.exclude", r"mm2.*\.internal, .*\.replica, __.*"),
        ),
        groups=Filter(
            found.pattern("groups", ".*"),
            found.pattern("groups.exclude", "console-consumer-.*, connect-.*, __.*"),
        ),
        configs_exclude=found.pattern(
            "config.properties.exclude",
            "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
            "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
            "log.message.timestamp.after.max.ms, message.timestamp.type, unclean.leader.election.enable, "
            "min.insync.replicas",
        ),
        defaults_from_source=found.one_of("use.defaults.from", "target", "source") == "source",
        slots=found.number("tasks.max", SLOTS_DEFAULT, least=1, most=_SLOTS_MAX),
        replication_factor=found.factor("replication.factor"),
        internal_replication_factors={
            name: found.factor(f"{name}.replication.factor")
            for name in ("heartbeats.topic", "checkpoints.topic", "offset-syncs.topic", "offset.storage")
        },
        refresh_topics_s=found.interval("refresh.topics", 600),
        refresh_groups_s=found.interval("refresh.groups", 600),
        sync_configs_s=found.interval("sync.topic.configs", 600),
        sync_acls_s=found.interval("sync.topic.acls", 600),
        sync_groups_s=found.interval("sync.group.offsets", 60, enabled=False),
        emit_heartbeats_s=found.interval("emit.heartbeats", 1),
        emit_checkpoints_s=found.interval("emit.checkpoints", 60),
        emit_offset_syncs=found.flag("emit.offset-syncs.enabled", default=True),
        replicates_heartbeats=found.flag("heartbeats.replication.enabled", default=True),
        offset_syncs_in_target=found.one_of("offset-syncs.topic.location", "source", "target") == "target",
        starts_at_end=_starts_at_end(source),
        commit_interval_s=min(
            found.number("transaction.boundary.interval.ms", 500, least=1, most=_MS_MAX) / 1000,
            _TRANSACTION_S_MAX,
        ),
        session_timeout_ms=found.number("session.timeout.ms", 10_000, least=1, most=_MS_MAX),
    )


def _starts_at_end(source: Cluster) -> bool:
    name = "auto.offset.reset"
    value = source.client("consumer").get(name, "earliest").strip()
    if value not in {"earliest", "latest"}:
        raise SettingError(f"{source.alias}.consumer.{name}={value}: must be earliest or latest")
    return value == "latest"


def _policy(found: _Lookup) -> ReplicationPolicy:
    name = found.text("replication.policy.class", "DefaultReplicationPolicy").removeprefix(_PACKAGE)
    if name not in _POLICIES:
        known = " or ".join(f"{_PACKAGE}{each}" for each in _POLICIES)
        raise SettingError(f"replication.policy.class={name}: must be {known}")
    separator = found.text("replication.policy.separator", SEPARATOR)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", separator):
        raise SettingError(
            f"replication.policy.separator={separator}: has to be of what names of topics may consist of: "
            "letters, digits, and . _ -"
        )
    internal = found.flag("replication.policy.internal.topic.separator.enabled", default=True)
    return ReplicationPolicy(separator, _POLICIES[name], internal)


def _ways_back(flow: FlowSettings, flows: Sequence[FlowSettings]) -> list[tuple[Filter, ...]]:
    """Where names stay the same, nothing tells a record that comes back from a new one. Raises SettingError
    if nothing else keeps it from that."""
    if not flow.replicates or not any(each.policy.keeps_names for each in flows):
        return []
    found = []
    for way in _ways(flow.target, flow.source, [each for each in flows if each.replicates]):
        if not any(each.policy.keeps_names for each in (flow, *way)):
            continue
        if all(each.topics == flow.topics for each in way):
            names = [each.name for each in (flow, *way)]
            own = " and ".join(f"{name}.topics" for name in names)
            raise SettingError(
                f"{', '.join(names[:-1])} and {names[-1]} are enabled for the same topics with "
                "IdentityReplicationPolicy: each record would go back and forth for ever. Use "
                f"DefaultReplicationPolicy, or give each its own {own}"
            )
        found.append(tuple(each.topics for each in way))
    return found


def _ways(source: Cluster, target: Cluster, flows: Sequence[FlowSettings]) -> Iterator[list[FlowSettings]]:
    """From cluster to cluster, through each at most once."""
    for flow in flows:
        if flow.source == source:
            if flow.target == target:
                yield [flow]
            else:
                left = [each for each in flows if source not in (each.source, each.target)]
                yield from ([flow, *way] for way in _ways(flow.target, target, left))


class _Lookup:
    """A setting of a flow: its own, or else the one for all."""

    def __init__(self, properties: Mapping[str, str], source: str, target: str) -> None:
        self._all = properties
        self._start = f"{source}->{target}."
        self.asked: set[str] = set()

    def text(self, name: str, default: str, *, is_global: bool = True) -> str:
        self.asked.add(name)
        shared = self._all.get(name, default) if is_global else default
        return self._all.get(self._start + name, shared).strip()

    def flag(self, name: str, *, default: bool, is_global: bool = True) -> bool:
        value = self.text(name, str(default), is_global=is_global).lower()
        if value not in {"true", "false"}:
            raise SettingError(f"{name}={value}: must be true or false")
        return value == "true"

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        what = f"a whole number from {least} to {most}"
        return int(self._parsed(name, str(default), int, what, least, most))

    def factor(self, name: str) -> int | None:
        value = self.number(name, -1, least=-1, most=_FACTOR_MAX)
        return None if value < 1 else value

    def interval(self, name: str, default_s: int, *, enabled: bool = True) -> float | None:
        seconds = self._parsed(
            f"{name}.interval.seconds",
            str(default_s),
            float,
            f"a number of seconds, more than 0 and at most {_INTERVAL_S_MAX}",
            1e-3,
            _INTERVAL_S_MAX,
        )
        return seconds if self.flag(f"{name}.enabled", default=enabled) else None

    def one_of(self, name: str, *choices: str) -> str:
        value = self.text(name, choices[0])
        if value not in choices:
            raise SettingError(f"{name}={value}: must be {' or '.join(choices)}")
        return value

    def pattern(self, name: str, default: str) -> re.Pattern[str] | None:
        """A list of names and expressions; None for an empty one, which matches nothing."""
        parts = _listed(self.text(name, default))
        try:
            return re.compile("|".join(f"(?:{part})" for part in parts)) if parts else None
        except re.error as error:
            raise SettingError(f"{name}: not regular expressions, separated by commas: {error}") from None

    def _parsed(
        self, name: str, default: str, parse: Callable[[str], Any], what: str, least: float, most: float
    ) -> Any:
        text = self.text(name, default)
        try:
            value = parse(text)
        except ValueError:
            value = least - 1
        # Written so that no number at all is not between them, either.
        if not least <= value <= most:
            raise SettingError(f"{name}={text}: must be {what}")
        return value


def _prefixed(properties: Mapping[str, str], start: str) -> dict[str, str]:
    return {name.removeprefix(start): value for name, value in properties.items() if name.startswith(start)}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
