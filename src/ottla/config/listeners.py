"""Listener addresses: `NAME://host:port`, and which protocol each name stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.key import ConfigError

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d+)")
_ENDPOINT = re.compile(rf"(?P<name>[A-Za-z0-9_.-]+)://{_ADDRESS.pattern}")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers in the metadata of brokers."""
ANY_HOST = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - names what others bind to


class Endpoint(NamedTuple):
    listener: str
    host: str
    """Empty for every interface."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Address(NamedTuple):
    host: str
    """Empty for every interface."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(key: str, text: str) -> Address | None:
    """None where there is none."""
    if not text:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(f"{key}={text}: must be host:port with a port from 0 to 65535, or empty")
    return Address(found["v6"] or found["host"] or "", int(found["port"]))


def parse_headers(text: str | None) -> Mapping[str, str]:
    """ottla.otel.headers: `name=value` each. What they are is nobody's business: they may have a password."""
    pairs = [each.strip() for each in (text or "").split(",") if each.strip()]
    if not all("=" in each for each in pairs):
        raise ConfigError("ottla.otel.headers: must be name=value pairs, separated by commas")
    return dict(each.split("=", 1) for each in pairs)


def listener_names(text: str) -> frozenset[str]:
    return frozenset(name.strip().upper() for name in text.split(",") if name.strip())


def parse_voters(values: Iterable[str]) -> Mapping[int, Address]:
    """controller.quorum.voters: `id@host:port` each."""
    voters: dict[int, Address] = {}
    for value in values:
        number, _, text = value.partition("@")
        found = _ADDRESS.fullmatch(text)
        if not number.isdecimal() or found is None or not 0 < int(found["port"]) <= 65535:
            raise ConfigError(f"controller.quorum.voters={value}: must be id@host:port")
        if int(number) in voters:
            raise ConfigError(f"controller.quorum.voters: must not name node {number} twice")
        voters[int(number)] = Address(found["v6"] or found["host"] or "", int(found["port"]))
    return voters


def parse_endpoints(key: str, values: Iterable[str]) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for value in values:
        found = _ENDPOINT.fullmatch(value)
        if found is None or int(found["port"]) > 65535:
            raise ConfigError(f"{key}={value}: must be NAME://host:port with a port from 0 to 65535")
        endpoints.append(
            Endpoint(found["name"].upper(), found["v6"] or found["host"] or "", int(found["port"]))
        )
    names = [endpoint.listener for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: must not use the listener name {name} twice")
    return tuple(endpoints)


def parse_protocol_map(text: str) -> Mapping[str, str]:
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = item.partition(":")
        if not separator:
            raise ConfigError(
                f"listener.security.protocol.map={text}: must be NAME:PROTOCOL separated by commas"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_connection_overrides(text: str) -> Mapping[str, int]:
    """max.connections.per.ip.overrides: `address:count`, the count after the last colon."""
    overrides: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = item.rpartition(":")
        if not address or not count.isdecimal():
            raise ConfigError(
                f"max.connections.per.ip.overrides={text}: must be address:count separated by commas"
            )
        overrides[address.strip().strip("[]")] = int(count)
    return overrides


def advertise(
    bound: Sequence[Endpoint], advertised: Sequence[Endpoint] | None, host_name: Callable[[], str]
) -> tuple[Endpoint, ...]:
    """What clients are told: the advertised address, else the bound one, else this machine's name.

    `bound` has the ports actually taken, so that port 0 can be asked for.
    """
    told = {endpoint.listener: endpoint for endpoint in (bound if advertised is None else advertised)}
    result: list[Endpoint] = []
    for endpoint in bound:
        wanted = told.get(endpoint.listener)
        if wanted is not None:
            host = host_name() if wanted.host in ANY_HOST else wanted.host
            result.append(Endpoint(endpoint.listener, host, wanted.port or endpoint.port))
    return tuple(result)
