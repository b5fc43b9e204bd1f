"""Schemas of the three formats: read, written in one form, and held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias

from ottla.registry.errors import InvalidSchema
from ottla.registry.schema import AVRO, JSON, PROTOBUF, Schema

TYPES = (JSON, PROTOBUF, AVRO)
# How many schemas are kept as they were read, and how many of those that are larger: objects take some twenty
# times as much memory as the text.
_SMALL_MAX, _LARGE_MAX = 1000, 10
_SMALL_CHARACTERS = 32 * 1024

Dependencies: TypeAlias = tuple[tuple[str, str], ...]
"""Name and text of each schema that is referred to, directly or not, those without references first."""


class Parsed(Protocol):
    @property
    def canonical(self) -> str:
        """One text for schemas that differ in layout alone."""
        ...

    @property
    def normalized(self) -> str:
        """One text also where they differ in order, as far as order means nothing."""
        ...

    def formatted(self, name: str) -> str:
        """The text in a form that a client asks for by name; InvalidSchema for one that is not known."""
        ...

    def unreadable(self, written: Parsed) -> list[str]:
        """What keeps data written with the other schema from being read with this one."""
        ...


def parse(kind: str, text: str, dependencies: Dependencies = ()) -> Parsed:
    """InvalidSchema says what is wrong with it."""
    is_small = len(text) + sum(len(each) for _, each in dependencies) <= _SMALL_CHARACTERS
    return (_parse_small if is_small else _parse_large)(kind, text, dependencies)


def _parse(kind: str, text: str, dependencies: Dependencies) -> Parsed:
    if kind == AVRO:
        from ottla.registry.formats.avro import parse_avro

        return parse_avro(text, dependencies)
    if kind == JSON:
        from ottla.registry.formats.json_schema import parse_json_schema

        return parse_json_schema(text, dependencies)
    if kind == PROTOBUF:
        from ottla.registry.formats.protobuf import parse_protobuf

        return parse_protobuf(text, dependencies)
    raise InvalidSchema(f"Invalid schema type {kind}")


_parse_small = lru_cache(_SMALL_MAX)(_parse)
_parse_large = lru_cache(_LARGE_MAX)(_parse)


class Earlier(Protocol):
    """A registered version to compare with."""

    @property
    def number(self) -> int: ...

    @property
    def schema(self) -> Schema: ...


COMPATIBILITIES = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


def incompatibilities(
    level: str, kind: str, new: Parsed, earlier: Sequence[tuple[Earlier, Parsed]]
) -> list[str]:
    """Why a schema may not follow the earlier ones, the oldest of which is first; empty if it may."""
    if level == "NONE":
        return []
    for version, old in reversed(earlier if level.endswith("_TRANSITIVE") else earlier[-1:]):
        found: list[str] = []
        if version.schema.type != kind:
            found = ["Incompatible because of different schema type"]
        else:
            if not level.startswith("FORWARD"):
                found += new.unreadable(old)
            if not level.startswith("BACKWARD"):
                found += old.unreadable(new)
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {version.number}}}",
                f"{{oldSchema: '{version.schema.text}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []
