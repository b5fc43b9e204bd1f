"""The settings that every source and every sink has, and those that their transforms and predicates add."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from ottla.connect.plugins import Kind, Listed, Plugins
from ottla.connect.settings.definition import (
    REQUIRED,
    Checked,
    Importance,
    Setting,
    Settings,
    Type,
)
from ottla.connect.settings.validators import at_least, connector_name, one_of, regular_expression

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
TASKS_MAX: Final = "tasks.max"
TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
EXACTLY_ONCE: Final = "exactly.once.support"
OFFSETS_TOPIC: Final = "offsets.storage.topic"
_COMMON: Final = "Common"
_ERRORS: Final = "Error Handling"
_EXACTLY_ONCE_GROUP: Final = "Exactly Once Support"
_CONVERTERS: Final = (("key", 6), ("value", 8), ("header", 10))


def _is_known(plugins: Plugins, kind: Kind, name: str) -> bool:
    return plugins.find(name, kind) is not None


def _converter_settings(plugins: Plugins, versions: Mapping[str, str | None]) -> Iterator[Setting]:
    for what, order in _CONVERTERS:
        kind = Kind.HEADER_CONVERTER if what == "header" else Kind.CONVERTER
        known = sorted(each.name for each in plugins.of(kind))
        title = what.capitalize()
        yield Setting(
            f"{what}.converter",
            Type.CLASS,
            versions.get(what),
            Importance.LOW,
            f"How {what}s become bytes and back; without one, the worker's.",
            group=_COMMON,
            order=order,
            width="SHORT",
            display=f"{title} converter class",
            recommended=tuple(known),
            known=partial(_is_known, plugins, kind),
        )
        yield Setting(
            f"{what}.converter.plugin.version",
            Type.STRING,
            versions.get(f"{what}.version"),
            Importance.LOW,
            f"The version of the {what} converter; there is one.",
            group=_COMMON,
            order=order + 1,
            width="SHORT",
            display=f"{title} converter version",
            recommended=tuple(filter(None, [versions.get(f"{what}.version")])),
        )


def _common(plugins: Plugins, version: str | None, converters: Mapping[str, str | None]) -> Iterator[Setting]:
    high, medium, low = Importance.HIGH, Importance.MEDIUM, Importance.LOW
    yield Setting(
        NAME,
        Type.STRING,
        REQUIRED,
        high,
        "The connector's name, unique in the Connect cluster.",
        connector_name,
        _COMMON,
        1,
        "MEDIUM",
        "Connector name",
    )
    yield Setting(
        CONNECTOR_CLASS,
        Type.STRING,
        REQUIRED,
        high,
        "The connector's class: its full name, or a short one such as FileStreamSource.",
        None,
        _COMMON,
        2,
        "LONG",
        "Connector class",
    )
    yield Setting(
        "connector.plugin.version",
        Type.STRING,
        version,
        medium,
        "The connector's version; there is one.",
        None,
        _COMMON,
        3,
        "MEDIUM",
        "Connector version",
        recommended=() if version is None else (version,),
    )
    yield Setting(
        TASKS_MAX,
        Type.INT,
        1,
        high,
        "Into how many tasks the work may be divided.",
        at_least(1),
        _COMMON,
        4,
        "SHORT",
        "Tasks max",
    )
    yield Setting(
        "tasks.max.enforce",
        Type.BOOLEAN,
        True,
        low,
        "Whether a connector that makes more tasks than tasks.max fails.",
        None,
        _COMMON,
        5,
        "SHORT",
        "Enforce tasks max",
    )
    yield from _converter_settings(plugins, converters)
    yield Setting(
        "transforms",
        Type.LIST,
        [],
        low,
        "Names of the transforms that records pass, in this order.",
        None,
        "Transforms",
        12,
        "LONG",
        "Transforms",
    )
    yield Setting(
        "predicates",
        Type.LIST,
        [],
        low,
        "Names of the predicates that transforms may refer to.",
        None,
        "Predicates",
        13,
        "LONG",
        "Predicates",
    )
    yield Setting(
        "config.action.reload",
        Type.STRING,
        "restart",
        low,
        "What to do when a value that a provider gave has changed.",
        one_of("none", "restart"),
        _COMMON,
        14,
        "MEDIUM",
        "Reload Action",
    )
    yield Setting(
        "errors.retry.timeout",
        Type.LONG,
        0,
        medium,
        "For how many milliseconds a failed step is tried again; -1 for ever.",
        None,
        _ERRORS,
        1,
        "MEDIUM",
        "Retry Timeout for Errors",
    )
    yield Setting(
        "errors.retry.delay.max.ms",
        Type.LONG,
        60_000,
        medium,
        "The longest wait between two attempts, which grow apart.",
        None,
        _ERRORS,
        2,
        "MEDIUM",
        "Maximum Delay Between Retries for Errors",
    )
    yield Setting(
        "errors.tolerance",
        Type.STRING,
        "none",
        medium,
        "none: a record that cannot be handled ends the task; all: it is skipped.",
        one_of("none", "all"),
        _ERRORS,
        3,
        "SHORT",
        "Error Tolerance",
    )
    yield Setting(
        "errors.log.enable",
        Type.BOOLEAN,
        False,
        medium,
        "Whether tolerated errors are logged.",
        None,
        _ERRORS,
        4,
        "SHORT",
        "Log Errors",
    )
    yield Setting(
        "errors.log.include.messages",
        Type.BOOLEAN,
        False,
        medium,
        "Whether the log says which record it was, too.",
        None,
        _ERRORS,
        5,
        "SHORT",
        "Log Error Details",
    )


_SOURCE: Final = Settings(
    Setting(
        "topic.creation.groups",
        Type.LIST,
        [],
        Importance.LOW,
        "Groups of topics with settings of their own, for topics that the worker creates.",
        group="Topic Creation",
        order=1,
        width="LONG",
        display="Topic Creation Groups",
    ),
    Setting(
        EXACTLY_ONCE,
        Type.STRING,
        "requested",
        Importance.MEDIUM,
        "required: the connector is refused unless it can write exactly once.",
        one_of("requested", "required"),
        group=_EXACTLY_ONCE_GROUP,
        order=2,
        width="SHORT",
        display="Exactly once support",
    ),
    Setting(
        "transaction.boundary",
        Type.STRING,
        "poll",
        Importance.MEDIUM,
        "What one transaction holds when writing exactly once: what a poll gave, or what an interval did.",
        one_of("poll", "interval", "connector"),
        group=_EXACTLY_ONCE_GROUP,
        order=3,
        width="SHORT",
        display="Transaction Boundary",
    ),
    Setting(
        "transaction.boundary.interval.ms",
        Type.LONG,
        None,
        Importance.LOW,
        "How long the interval is; without it, the worker's offset.flush.interval.ms.",
        group=_EXACTLY_ONCE_GROUP,
        order=4,
        width="SHORT",
        display="Transaction boundary interval",
    ),
    Setting(
        OFFSETS_TOPIC,
        Type.STRING,
        None,
        Importance.LOW,
        "A topic of its own for the connector's offsets.",
        group="offsets.topic",
        order=1,
        width="LONG",
        display="Offsets topic",
    ),
)

_SINK: Final = Settings(
    Setting(
        TOPICS,
        Type.LIST,
        [],
        Importance.HIGH,
        "The topics to read, separated by commas.",
        group=_COMMON,
        order=4,
        width="LONG",
        display="Topics",
    ),
    Setting(
        TOPICS_REGEX,
        Type.STRING,
        "",
        Importance.HIGH,
        "What the names of the topics to read match; instead of topics.",
        regular_expression,
        _COMMON,
        4,
        "LONG",
        "Topics regex",
    ),
    Setting(
        DEAD_LETTER_TOPIC,
        Type.STRING,
        "",
        Importance.MEDIUM,
        "The topic that gets records which cannot be handled; none without it.",
        group=_ERRORS,
        order=6,
        width="MEDIUM",
        display="Dead Letter Queue Topic Name",
    ),
    Setting(
        "errors.deadletterqueue.topic.replication.factor",
        Type.SHORT,
        3,
        Importance.MEDIUM,
        "Copies of that topic where the worker has to create it; as many as there are brokers, at most.",
        group=_ERRORS,
        order=7,
        width="MEDIUM",
        display="Dead Letter Queue Topic Replication Factor",
    ),
    Setting(
        "errors.deadletterqueue.context.headers.enable",
        Type.BOOLEAN,
        False,
        Importance.MEDIUM,
        "Whether headers say where such a record is from and what went wrong.",
        group=_ERRORS,
        order=8,
        width="MEDIUM",
        display="Enable Error Context Headers",
    ),
)


def base_settings(
    plugins: Plugins,
    connector: Listed | None,
    *,
    is_sink: bool,
    converters: Mapping[str, str | None] | None = None,
) -> Settings:
    """Of every connector; with a connector and the worker's converters, with what they make of defaults."""
    version = None if connector is None else connector.version
    return Settings(*_common(plugins, version, converters or {})) + (_SINK if is_sink else _SOURCE)


def plugin_settings(plugins: Plugins, given: Mapping[str, str]) -> Settings:
    """What the transforms and predicates of a configuration add."""
    added: list[Setting] = []
    for what, kind, title in (
        ("transforms", Kind.TRANSFORM, "Transformation"),
        ("predicates", Kind.PREDICATE, "Predicate"),
    ):
        for alias in aliases(given.get(what)):
            added += _of_alias(
                plugins, given, kind, f"{what}.{alias}.", f"{what.capitalize()}: {alias}", title, alias
            )
    return Settings(*added)


def aliases(text: str | None) -> list[str]:
    return [alias.strip() for alias in (text or "").split(",") if alias.strip()]


def _of_alias(
    plugins: Plugins, given: Mapping[str, str], kind: Kind, prefix: str, group: str, title: str, alias: str
) -> Iterator[Setting]:
    known = tuple(sorted(each.name for each in plugins.of(kind)))
    found = plugins.find(given.get(f"{prefix}type"), kind)
    version = None if found is None else found.version
    yield Setting(
        f"{prefix}type",
        Type.CLASS,
        REQUIRED,
        Importance.HIGH,
        f"The class of {alias}.",
        None,
        group,
        0,
        "LONG",
        f"{title} type for {alias}",
        recommended=known,
        known=partial(_is_known, plugins, kind),
    )
    yield Setting(
        f"{prefix}plugin.version",
        Type.STRING,
        version,
        Importance.HIGH,
        f"The version of {alias}; there is one.",
        None,
        group,
        1,
        "LONG",
        f"{title} version for {alias}",
        recommended=() if version is None else (version,),
    )
    if found is None:
        return
    own = list(found.load().settings.prefixed(prefix, group, 2))
    yield from own
    if kind is Kind.TRANSFORM:
        yield Setting(
            f"{prefix}negate",
            Type.BOOLEAN,
            False,
            Importance.MEDIUM,
            "Whether the transform is for records that the predicate is false for.",
            None,
            group,
            2 + len(own),
            "NONE",
            "negate",
        )
        yield Setting(
            f"{prefix}predicate",
            Type.STRING,
            None,
            Importance.MEDIUM,
            "The predicate that says which records the transform is for.",
            None,
            group,
            3 + len(own),
            "NONE",
            "predicate",
        )


def converter_part(plugins: Plugins, given: Mapping[str, str], what: str) -> dict[str, Checked]:
    """The settings of a connector's own converter, under their full names."""
    kind = Kind.HEADER_CONVERTER if what == "header" else Kind.CONVERTER
    prefix = f"{what}.converter."
    found = plugins.find(given.get(f"{what}.converter"), kind)
    if found is None:
        return {}
    own = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    checked = found.load().settings.check({"converter.type": what, **own})
    return {
        prefix + name: Checked(
            replace(each.setting, name=prefix + name, display=each.setting.display or name),
            each.value,
            each.errors,
        )
        for name, each in checked.items()
    }


def check_sink(given: Mapping[str, str], checked: Mapping[str, Checked]) -> None:
    """Topics, or a pattern of them, and a dead-letter topic that is none of them."""
    topics, pattern = aliases(given.get(TOPICS)), given.get(TOPICS_REGEX) or ""
    dead_letters = given.get(DEAD_LETTER_TOPIC) or ""

    def complain(text: str, *names: str) -> None:
        for name in names:
            checked[name].errors.append(text)

    if topics and pattern:
        text = "topics and topics.regex are mutually exclusive options, but both are set."
        complain(text, TOPICS, TOPICS_REGEX)
    elif not topics and not pattern:
        complain("Must configure one of topics or topics.regex", TOPICS, TOPICS_REGEX)
    if dead_letters and dead_letters in topics:
        text = (
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('{TOPICS}={given.get(TOPICS)}') "
            "consumed by the connector"
        )
        complain(text, TOPICS)
    if dead_letters and pattern and not checked[TOPICS_REGEX].errors and re.fullmatch(pattern, dead_letters):
        text = (
            f"The DLQ topic '{dead_letters}' may not be included in the regex matching the topics "
            f"('{TOPICS_REGEX}={pattern}') consumed by the connector"
        )
        complain(text, TOPICS_REGEX)
