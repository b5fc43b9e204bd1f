"""`worker.properties`: the settings of a worker, under Kafka's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.connect.errors import SettingError
from ottla.connect.settings.definition import Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, one_of

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_SIMPLE_HEADERS: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CLIENTS: Final = ("producer.", "consumer.", "admin.")

SETTINGS: Final = Settings(
    Setting(
        "bootstrap.servers", Type.STRING, "localhost:9092", _HIGH, "Brokers of the cluster to work with."
    ),
    Setting(
        "group.id",
        Type.STRING,
        "connect-cluster",
        _HIGH,
        "The Connect cluster's name. Workers of the same name share connectors and topics.",
    ),
    Setting(
        "listeners",
        Type.LIST,
        ["http://:8083"],
        _LOW,
        "Where REST is served: http://host:port. No host is all of them, port 0 any that is free.",
    ),
    Setting(
        "rest.advertised.host.name",
        Type.STRING,
        None,
        _LOW,
        "The host under which other workers reach this one.",
    ),
    Setting(
        "rest.advertised.port", Type.INT, None, _LOW, "The port under which other workers reach this one."
    ),
    Setting(
        "access.control.allow.origin", Type.STRING, "", _LOW, "Whose web pages may call REST; * for all."
    ),
    Setting(
        "key.converter",
        Type.STRING,
        _JSON,
        _HIGH,
        "How keys become bytes, unless a connector says otherwise.",
    ),
    Setting(
        "value.converter",
        Type.STRING,
        _JSON,
        _HIGH,
        "How values become bytes, unless a connector says otherwise.",
    ),
    Setting(
        "header.converter",
        Type.STRING,
        _SIMPLE_HEADERS,
        _LOW,
        "How header values become bytes, unless a connector says otherwise.",
    ),
    Setting(
        "config.storage.topic",
        Type.STRING,
        "connect-configs",
        _HIGH,
        "The topic of connectors and their tasks.",
    ),
    Setting(
        "config.storage.replication.factor", Type.SHORT, -1, _LOW, "Its copies; -1 for the brokers' default."
    ),
    Setting(
        "offset.storage.topic", Type.STRING, "connect-offsets", _HIGH, "The topic of what sources have read."
    ),
    Setting(
        "offset.storage.partitions", Type.INT, 25, _LOW, "Its partitions, where it is created.", at_least(1)
    ),
    Setting(
        "offset.storage.replication.factor", Type.SHORT, -1, _LOW, "Its copies; -1 for the brokers' default."
    ),
    Setting("status.storage.topic", Type.STRING, "connect-status", _HIGH, "The topic of how connectors are."),
    Setting(
        "status.storage.partitions", Type.INT, 5, _LOW, "Its partitions, where it is created.", at_least(1)
    ),
    Setting(
        "status.storage.replication.factor", Type.SHORT, -1, _LOW, "Its copies; -1 for the brokers' default."
    ),
    Setting(
        "offset.storage.file.filename",
        Type.STRING,
        "connect.offsets",
        _HIGH,
        "The file of what sources have read, for a worker that stands alone.",
    ),
    Setting(
        "offset.flush.interval.ms",
        Type.LONG,
        60_000,
        _LOW,
        "How often tasks store how far they are.",
        at_least(1),
    ),
    Setting("offset.flush.timeout.ms", Type.LONG, 5_000, _LOW, "How long storing it may take.", at_least(1)),
    Setting(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        5_000,
        _LOW,
        "How long a task that is to stop may take before it is left behind.",
        at_least(1),
    ),
    Setting(
        "exactly.once.source.support",
        Type.STRING,
        "disabled",
        _HIGH,
        "enabled: sources write records and offsets in transactions.",
        one_of("disabled", "preparing", "enabled"),
    ),
    Setting(
        "topic.creation.enable", Type.BOOLEAN, True, _LOW, "Whether topics that sources write to are created."
    ),
    Setting(
        "topic.tracking.enable", Type.BOOLEAN, True, _LOW, "Whether REST tells which topics connectors use."
    ),
    Setting("topic.tracking.allow.reset", Type.BOOLEAN, True, _LOW, "Whether REST may make it forget them."),
    Setting(
        "ottla.spark.master",
        Type.STRING,
        "local[*]",
        _MEDIUM,
        "Where Spark runs connectors that are made for it.",
    ),
    Setting(
        "ottla.spark.checkpoint.dir",
        Type.STRING,
        None,
        _MEDIUM,
        "The directory for what Spark remembers of connectors, which all of Spark has to reach.",
    ),
)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    values: Mapping[str, Any]
    given: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def bootstrap_servers(self) -> str:
        return str(self.values["bootstrap.servers"])

    @property
    def is_exactly_once(self) -> bool:
        return bool(self.values["exactly.once.source.support"] == "enabled")

    @property
    def client(self) -> dict[str, str]:
        """Settings of clients, such as security, that hold for all of them."""
        return {
            name: value
            for name, value in self.given.items()
            if name not in SETTINGS
            and not name.startswith((*_CLIENTS, "key.", "value.", "header.", "plugin."))
        }

    def client_of(self, kind: str, connector: Mapping[str, str]) -> dict[str, str]:
        """Of the `kind` producer, consumer or admin for one connector, which may have settings of its own."""
        prefix, override = f"{kind}.", f"{kind}.override."
        own = {
            name.removeprefix(prefix): value for name, value in self.given.items() if name.startswith(prefix)
        }
        overridden = {
            name.removeprefix(override): value
            for name, value in connector.items()
            if name.startswith(override)
        }
        return {"bootstrap.servers": self.bootstrap_servers, **self.client, **own, **overridden}

    @property
    def converters(self) -> dict[str, str]:
        return {what: str(self.values[f"{what}.converter"]) for what in ("key", "value", "header")}

    def converter_settings(self, what: str) -> dict[str, str]:
        prefix = f"{what}.converter."
        return {
            name.removeprefix(prefix): value for name, value in self.given.items() if name.startswith(prefix)
        }

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen. Raises SettingError."""
        listener = self.values["listeners"][0]
        parts = urlsplit(listener.lower())
        if parts.scheme not in {"http", ""} or parts.port is None:
            raise SettingError(f"listeners={listener}: has to be http://host:port")
        return parts.hostname or "0.0.0.0", parts.port  # noqa: S104 - as Kafka Connect does

    @property
    def checkpoint_dir(self) -> str:
        given = self.values["ottla.spark.checkpoint.dir"]
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return str(given) if given else f"{home}/ottla/connect/{self.values['group.id']}"


def worker_settings(given: Mapping[str, str]) -> WorkerSettings:
    """Raises SettingError. Settings that are not known here may be those of clients or of converters."""
    return WorkerSettings(SETTINGS.parse(given), dict(given))
