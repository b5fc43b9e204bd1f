"""What no single key can say: settings that must agree, and what this version cannot do yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ottla.config.key import ConfigError, Value
from ottla.config.listeners import (
    SECURITY_PROTOCOLS,
    listener_names,
    parse_address,
    parse_connection_overrides,
    parse_endpoints,
    parse_headers,
    parse_protocol_map,
    parse_voters,
)
from ottla.config.principals import parse_super_users

Values = Mapping[str, Value]


def check_broker(values: Values, topic_values: Values) -> None:
    _check_identity(values)
    _check_listeners(values)
    _check_metrics(values)
    _check_limits(values)
    _check_replication(values)
    _check_log(values, topic_values)
    check_topic(topic_values)


def check_topic(values: Values) -> None:
    """Rules between the settings of one topic; `values` may leave settings out."""
    lag_min_ms = values.get("min.compaction.lag.ms")
    lag_max_ms = values.get("max.compaction.lag.ms")
    if isinstance(lag_min_ms, int) and isinstance(lag_max_ms, int) and lag_min_ms > lag_max_ms:
        raise ConfigError(
            f"min.compaction.lag.ms={lag_min_ms}: must be at most max.compaction.lag.ms={lag_max_ms}"
        )


def _check_identity(values: Values) -> None:
    node_id = values["node.id"]
    if values["broker.id"] not in {None, node_id}:
        raise ConfigError(f"broker.id={values['broker.id']}: must equal node.id={node_id}; node.id is enough")
    roles = cast("tuple[str, ...]", values["process.roles"])
    if not roles:
        raise ConfigError("process.roles=: must be broker, controller or broker,controller")
    voters = parse_voters(cast("tuple[str, ...]", values["controller.quorum.voters"]))
    if "controller" in roles:
        if voters and node_id not in voters:
            raise ConfigError(
                f"controller.quorum.voters: must have this node, {node_id}@host:port, because process.roles "
                f"has controller; it has {sorted(voters)}"
            )
    elif node_id in voters:
        raise ConfigError(
            f"controller.quorum.voters: must not have this node, {node_id}, because process.roles={roles[0]}"
        )
    elif not voters and not values["controller.quorum.bootstrap.servers"]:
        raise ConfigError(
            f"process.roles={roles[0]}: say where the controllers are, in controller.quorum.voters or "
            "controller.quorum.bootstrap.servers; or be broker,controller"
        )


def _check_metrics(values: Values) -> None:
    parse_address("ottla.metrics.listener", cast(str, values["ottla.metrics.listener"]))
    if bool(values["ottla.metrics.username"]) != bool(values["ottla.metrics.password"]):
        raise ConfigError(
            "ottla.metrics.username and ottla.metrics.password: give both, or neither; else metrics would be "
            "open to everybody"
        )
    endpoint_url = cast(str, values["ottla.otel.endpoint"])
    if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
        raise ConfigError(f"ottla.otel.endpoint={endpoint_url}: must begin with http:// or https://")
    parse_headers(cast("str | None", values["ottla.otel.headers"]))
    if values["ottla.metrics.tls.key.file"] and not values["ottla.metrics.tls.certificate.file"]:
        raise ConfigError("ottla.metrics.tls.key.file: give ottla.metrics.tls.certificate.file, too")


def _check_listeners(values: Values) -> None:
    listeners = parse_endpoints("listeners", cast("tuple[str, ...]", values["listeners"]))
    controllers = {name.upper() for name in cast("tuple[str, ...]", values["controller.listener.names"])}
    roles = cast("tuple[str, ...]", values["process.roles"])
    names = {endpoint.listener for endpoint in listeners}
    clients = names - controllers
    if "broker" not in roles:
        if clients:
            raise ConfigError(
                f"listeners: {','.join(sorted(clients))} must be in controller.listener.names="
                f"{','.join(sorted(controllers))}, because process.roles=controller serves no clients"
            )
    elif not clients:
        raise ConfigError(
            "listeners: must have a listener for clients; all of them are in controller.listener.names="
            + ",".join(sorted(controllers))
        )
    elif "controller" not in roles and clients != names:
        raise ConfigError(
            f"listeners: {','.join(sorted(names - clients))} is in controller.listener.names, but "
            "process.roles=broker has no controller; remove it from listeners"
        )
    protocols = parse_protocol_map(cast(str, values["listener.security.protocol.map"]))
    for endpoint in listeners:
        protocol = protocols.get(endpoint.listener)
        if protocol is None and endpoint.listener in controllers:
            continue
        if protocol is None:
            raise ConfigError(
                f"listeners={endpoint}: {endpoint.listener} must be in listener.security.protocol.map, "
                f"for example {endpoint.listener}:PLAINTEXT"
            )
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {endpoint.listener}:{protocol} is none of "
                + ", ".join(SECURITY_PROTOCOLS)
            )
    if values["advertised.listeners"] is not None:
        told = parse_endpoints(
            "advertised.listeners", cast("tuple[str, ...]", values["advertised.listeners"])
        )
        for endpoint in told:
            if endpoint.listener not in clients | controllers:
                raise ConfigError(
                    f"advertised.listeners={endpoint}: {endpoint.listener} must be one of listeners"
                )
            if endpoint.host in {"0.0.0.0", "::"}:  # noqa: S104 - refuses to advertise it
                raise ConfigError(
                    f"advertised.listeners={endpoint}: must be an address that clients can connect to"
                )
    early = listener_names(cast("str | None", values["early.start.listeners"]) or "")
    if not early <= names | controllers:
        raise ConfigError(
            f"early.start.listeners: {','.join(sorted(early - names - controllers))} must be one of "
            "listeners or of controller.listener.names"
        )
    parse_super_users(cast(str, values["super.users"]))


def _check_limits(values: Values) -> None:
    queued = cast(int, values["queued.max.request.bytes"])
    request_max = cast(int, values["socket.request.max.bytes"])
    if 0 < queued < request_max:
        raise ConfigError(
            f"queued.max.request.bytes={queued}: must be at least socket.request.max.bytes={request_max}"
        )
    overrides = parse_connection_overrides(cast(str, values["max.connections.per.ip.overrides"]))
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip=0: must be at least 1 unless max.connections.per.ip.overrides is set"
        )


def _check_replication(values: Values) -> None:
    wait_ms = cast(int, values["replica.fetch.wait.max.ms"])
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > cast(int, values[name]):
            raise ConfigError(f"replica.fetch.wait.max.ms={wait_ms}: must be at most {name}={values[name]}")


def _check_log(values: Values, topic_values: Values) -> None:
    if topic_values["retention.ms"] == 0:
        raise ConfigError("log.retention.ms=0: must be at least 1, or -1 to keep records for ever")
    buffer_bytes = cast(int, values["log.cleaner.dedupe.buffer.size"])
    threads = cast(int, values["log.cleaner.threads"])
    if threads and buffer_bytes // threads <= 1024 * 1024:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={buffer_bytes}: must be more than 1048576 for each of "
            f"log.cleaner.threads={threads}"
        )
