"""Where records go, and whether they do: RegexRouter, Filter, and the predicates."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from ottla.connect.columns import SourceColumns
from ottla.connect.plugin import AnyRecord, Config, Predicate, Transform
from ottla.connect.records import ConnectRecord, changed
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import all_of, not_empty, regular_expression

_GROUP = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}")


class RegexRouter(Transform[AnyRecord]):
    settings: ClassVar[Settings] = Settings(
        Setting(
            "regex",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "What the whole name of a topic has to match.",
            regular_expression,
        ),
        Setting(
            "replacement",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "The new name, with $1 for what the first group matched.",
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._matches = re.compile(self.config["regex"]).fullmatch

    def apply(self, record: AnyRecord) -> AnyRecord:
        topic = self._routed(record.topic)
        return record if topic is None else changed(record, topic=topic)

    def apply_columns(self, records: SourceColumns) -> SourceColumns:
        topic = self._routed(records.topic)
        return records if topic is None else replace(records, topic=topic)

    def _routed(self, topic: str) -> str | None:
        match = self._matches(topic)
        return None if match is None else expanded(match, self.config["replacement"])


def expanded(match: re.Match[str], replacement: str) -> str:
    """By Java's rules: $1, ${name}, and a backslash before what is meant as it is."""

    def group(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        if found[3] is not None:
            return match[found[3]] or ""
        # As many digits as make the number of a group; others are text.
        digits = found[2]
        for length in range(len(digits), 0, -1):
            if int(digits[:length]) <= (match.re.groups or 0):
                return (match[int(digits[:length])] or "") + digits[length:]
        raise IndexError(f"there is no group {digits} in {match.re.pattern}")

    return _GROUP.sub(group, replacement)


class Filter(Transform[AnyRecord]):
    """Drops every record; a predicate says which ones it sees."""

    def apply(self, record: AnyRecord) -> None:
        return None

    def apply_columns(self, records: SourceColumns) -> SourceColumns:
        return records.part(0, 0)


class TopicNameMatches(Predicate):
    settings: ClassVar[Settings] = Settings(
        Setting(
            "pattern",
            Type.STRING,
            REQUIRED,
            Importance.MEDIUM,
            "What the whole name of the topic has to match.",
            all_of(not_empty, regular_expression),
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._matches = re.compile(self.config["pattern"]).fullmatch

    def test(self, record: ConnectRecord) -> bool:
        return self._matches(record.topic) is not None

    def test_columns(self, records: SourceColumns) -> bool:
        return self._matches(records.topic) is not None


class HasHeaderKey(Predicate):
    settings: ClassVar[Settings] = Settings(
        Setting("name", Type.STRING, REQUIRED, Importance.MEDIUM, "The name of the header.", not_empty)
    )

    def test(self, record: ConnectRecord) -> bool:
        return any(header.key == self.config["name"] for header in record.headers)

    def test_columns(self, records: SourceColumns) -> bool:
        return False


class RecordIsTombstone(Predicate):
    def test(self, record: ConnectRecord) -> bool:
        return record.value is None
