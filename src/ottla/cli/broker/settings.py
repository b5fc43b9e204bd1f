"""From a file and flags to a broker's settings. Flags win over the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ottla.config import (
    BROKER_KEYS,
    BrokerConfig,
    ConfigError,
    Endpoint,
    decode_properties,
    parse_properties,
)
from ottla.config.listeners import ANY_HOST, parse_endpoints

# Who starts a broker without a file tries something, and should not wait three seconds for each new group.
# Kafka's own server.properties says the same.
_WITHOUT_FILE = {"group.initial.rebalance.delay.ms": "0"}


def broker_config(
    properties_file: str | None,
    port: int | None,
    data_dir: str | None,
    settings: Iterable[str],
    *,
    working_directory: str = "",
) -> BrokerConfig:
    """ConfigError or OSError when they cannot be used. Of another process if its directory is given."""
    path = properties_file and os.path.join(working_directory, properties_file)
    properties = given_properties(path, settings)
    if data_dir is not None:
        properties["log.dirs"] = data_dir
    config = BrokerConfig.from_properties(properties)
    # Absolute, so that messages, the banner and `ottla stop` mean the same place wherever they are read.
    properties["log.dirs"] = ",".join(
        os.path.abspath(os.path.join(working_directory, directory)) for directory in config.log_dirs
    )
    if port is not None:
        properties.update(_on_port(config, port))
    return BrokerConfig.from_properties(properties)


def given_properties(path: str | None, settings: Iterable[str]) -> dict[str, str]:
    """Of a file, and of `--set`, which wins."""
    properties = _read(path) if path else dict(_WITHOUT_FILE)
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {setting}: must be key=value")
        properties[name.strip()] = value.strip()
    return properties


def ignored(unknown_keys: Iterable[str]) -> list[str]:
    """The keys Ottla does not know, each with the one that was probably meant."""
    import difflib

    names: list[str] = []
    for name in unknown_keys:
        near = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.9)
        names.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return names


def unreachable_from_elsewhere(listeners: Iterable[Endpoint], told: Iterable[Endpoint]) -> list[str]:
    """A warning per listener that takes connections from everywhere and sends all clients to themselves."""
    advertised = {endpoint.listener: endpoint for endpoint in told}
    return [
        f"{endpoint} is advertised as {shown.host}:{shown.port}, which clients on other machines take for "
        f"themselves; set advertised.listeners={endpoint.listener}://HOST:{shown.port} with this machine's "
        "name or address"
        for endpoint in listeners
        if endpoint.host in ANY_HOST
        and (shown := advertised.get(endpoint.listener)) is not None
        and _is_loopback(shown.host)
    ]


def _is_loopback(host: str) -> bool:
    return host.partition(".")[0] == "localhost" or host == "::1" or host.startswith("127.")


def _read(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        return parse_properties(decode_properties(data))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _on_port(config: BrokerConfig, port: int) -> Mapping[str, str]:
    """The listeners with the first client listener moved to `port`, and what is advertised for it as well."""
    moved = config.broker_listeners[0].listener

    def joined(name: str) -> str:
        endpoints = parse_endpoints(name, config.strings(name))
        return ",".join(
            str(Endpoint(endpoint.listener, endpoint.host, port) if endpoint.listener == moved else endpoint)
            for endpoint in endpoints
        )

    properties = {"listeners": joined("listeners")}
    if config.advertised_listeners is not None:
        properties["advertised.listeners"] = joined("advertised.listeners")
    return properties
