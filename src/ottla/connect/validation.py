"""What is right and wrong with a connector's configuration, as `config/validate` answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.column_transforms import without_columns
from ottla.connect.connector_settings import (
    CONNECTOR_CLASS,
    EXACTLY_ONCE,
    OFFSETS_TOPIC,
    aliases,
    base_settings,
    check_sink,
    converter_part,
    plugin_settings,
)
from ottla.connect.errors import ConnectError, SettingError, bad_request, not_found
from ottla.connect.plugin import Connector, SourceConnector, SparkSink, SparkSource
from ottla.connect.plugins import Kind, Listed, Plugins
from ottla.connect.settings.definition import Checked, Setting


@dataclass(frozen=True, slots=True)
class Validation:
    connector: str
    checked: Mapping[str, Checked]

    @property
    def errors(self) -> list[str]:
        return [error for each in self.checked.values() for error in each.errors]

    def described(self) -> dict[str, Any]:
        groups = [each.setting.group for each in self.checked.values() if each.setting.group is not None]
        return {
            "name": self.connector,
            "error_count": len(self.errors),
            "groups": list(dict.fromkeys(groups)),
            "configs": [each.described() for each in self.checked.values()],
        }

    def refuse(self) -> None:
        """Raises RestError if anything is wrong."""
        if errors := self.errors:
            listed = "\n".join(errors)
            raise bad_request(
                f"Connector configuration is invalid and contains the following {len(errors)} "
                f"error(s):\n{listed}"
                "\nYou can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`"
            )


class Validator:
    def __init__(
        self, plugins: Plugins, worker_converters: Mapping[str, str | None], *, is_exactly_once: bool
    ) -> None:
        self._plugins = plugins
        self._worker_converters = worker_converters
        self._is_exactly_once = is_exactly_once

    def listed(self, given: Mapping[str, Any]) -> Listed:
        name = given.get(CONNECTOR_CLASS)
        if name is None:
            shown = ", ".join(f"{key}={value}" for key, value in given.items())
            raise bad_request(f"Connector config {{{shown}}} contains no connector type")
        found = self._plugins.find(str(name), Kind.SOURCE, Kind.SINK)
        if found is None:
            known = ", ".join(each.name for each in self._plugins.of(Kind.SINK, Kind.SOURCE))
            raise bad_request(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}"
            )
        return found

    def validate(self, given: Mapping[str, str]) -> Validation:
        """Raises RestError where there is no such connector. May look at the outside world, and take
        its time."""
        listed = self.listed(given)
        connector = listed.load()
        assert issubclass(connector, Connector)
        is_sink = listed.kind is Kind.SINK
        settings = base_settings(self._plugins, listed, is_sink=is_sink, converters=self._converters(given))
        settings = settings + plugin_settings(self._plugins, given) + connector.settings
        checked = settings.check(given)
        self._check_predicates(given, checked)
        if is_sink:
            check_sink(given, checked)
        for what in ("key", "value", "header"):
            for name, each in converter_part(self._plugins, given, what).items():
                checked.setdefault(name, each)
        if not is_sink and given.get(OFFSETS_TOPIC):
            checked[OFFSETS_TOPIC].errors.append(
                f"{OFFSETS_TOPIC}: leave it out; offsets of all connectors lie in the worker's own topic"
            )
        if issubclass(connector, SparkSource | SparkSink):
            checked["transforms"].errors.extend(
                f"{name} cannot be used with a connector on Spark: it has no form that works on columns."
                for name in without_columns(self._plugins, given)
            )
        if not any(each.errors for each in checked.values()):
            self._check_together(connector(), given, checked)
        return Validation(str(given[CONNECTOR_CLASS]), checked)

    def plugin_settings(self, name: str) -> list[Setting]:
        """Of any plugin, with those that connectors have in common."""
        found = self._plugins.find(name)
        if found is None:
            raise not_found(f"Unknown plugin {name}.")
        own = found.load().settings
        if found.kind not in {Kind.SOURCE, Kind.SINK}:
            return list(own)
        base = base_settings(self._plugins, found, is_sink=found.kind is Kind.SINK)
        return [*own, *(each for each in base if each.name not in own)]

    def _converters(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """Defaults are the worker's converters, and the versions of those that are used."""
        found: dict[str, str | None] = {}
        for what in ("key", "value", "header"):
            default = self._worker_converters.get(what)
            kind = Kind.HEADER_CONVERTER if what == "header" else Kind.CONVERTER
            used = self._plugins.find(given.get(f"{what}.converter", default), kind)
            found[what] = default
            found[f"{what}.version"] = None if used is None else used.version
        return found

    def _check_predicates(self, given: Mapping[str, str], checked: Mapping[str, Checked]) -> None:
        known = aliases(given.get("predicates"))
        for alias in aliases(given.get("transforms")):
            each = checked.get(f"transforms.{alias}.predicate")
            if each is not None and each.value is not None and each.value not in known:
                name = each.setting.name
                each.errors.append(
                    str(
                        SettingError.of(
                            name, each.value, f"Predicate '{each.value}' is not declared in predicates"
                        )
                    )
                )

    def _check_together(
        self, connector: Connector, given: Mapping[str, str], checked: Mapping[str, Checked]
    ) -> None:
        """What no setting shows by itself: transforms that cannot be made, and what the connector finds."""
        for what, kind in (("transforms", Kind.TRANSFORM), ("predicates", Kind.PREDICATE)):
            for alias in aliases(given.get(what)):
                prefix = f"{what}.{alias}."
                found = self._plugins.find(given.get(f"{prefix}type"), kind)
                assert found is not None
                own = {
                    name.removeprefix(prefix): value
                    for name, value in given.items()
                    if name.startswith(prefix)
                }
                made: Any = found.load()
                try:
                    made(own)
                except ConnectError as error:
                    checked[f"{prefix}type"].errors.append(str(error))
        if isinstance(connector, SourceConnector) and given.get(EXACTLY_ONCE) == "required":
            if not self._is_exactly_once:
                checked[EXACTLY_ONCE].errors.append(
                    "This worker does not have exactly-once source support enabled: "
                    "set exactly.once.source.support=enabled in its properties."
                )
            elif not connector.is_exactly_once(given):
                checked[EXACTLY_ONCE].errors.append(
                    "The connector does not support exactly-once semantics with the provided configuration."
                )
        for name, errors in connector.validate(given).items():
            checked[name].errors.extend(errors)
