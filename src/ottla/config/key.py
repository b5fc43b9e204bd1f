"""One configuration key: everything there is to know about it, and how its text becomes a value.

Types and parsing follow Apache Kafka's `ConfigDef`, so a file that Kafka accepts is accepted here and a value
that Kafka refuses is refused here. Files, flags, DescribeConfigs, error texts and the reference page all
derive from these objects.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
Importance: TypeAlias = Literal["high", "medium", "low"]
Dynamic: TypeAlias = Literal["read-only", "per-broker", "cluster-wide"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

# Python's int() would also take "1_000" and Kafka's parser does not.
_INTEGER = re.compile(r"[+-]?[0-9]+")
# Longer ones Python refuses to read.
_INTEGER_DIGITS_MAX = 4000
_COMMA = re.compile(r"\s*,\s*")
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


class ConfigError(Exception):
    """A key or value that cannot be used. The text names the key, the value and the bound or remedy."""


class ConfigType(enum.IntEnum):
    """The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    """Only in descriptions, of settings of another version."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class Synonym(NamedTuple):
    """A broker key that gives a topic key its default; `factor` turns hours or minutes into milliseconds."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    also: tuple[int, ...] = ()
    """Values allowed outside the bounds, such as -1 for "the codec's own default"."""
    choices: tuple[str, ...] = ()
    required: bool = False
    """A list that may not be empty."""
    replicas: bool = False
    """A list of replicas, as partition:broker, or `*` for all. Kafka lets such a list repeat itself."""
    importance: Importance = "medium"
    dynamic: Dynamic = "read-only"
    synonyms: tuple[Synonym, ...] = ()
    """Topic keys only: where the default comes from, the first one that is set wins."""
    effective: bool = True
    """False for a key that is accepted, checked and described, but changes nothing in this version."""
    internal: bool = False
    """For tests: accepted, but neither documented nor described unless it is set."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def bounds(self) -> str:
        """The values allowed, in words; empty when the type says it all."""
        if self.choices:
            listed = ", ".join(self.choices)
            return f"any of {listed}" if self.type is ConfigType.LIST else f"one of {listed}"
        if self.replicas:
            return "`*` or a list of partition:broker"
        if self.minimum is None:
            return "not empty" if self.required else ""
        text = f"at least {self.minimum}"
        if self.maximum is not None:
            text = f"between {self.minimum} and {self.maximum}"
        return text + "".join(f" or {value}" for value in self.also)

    def parse(self, text: str) -> Value:
        """The value of `text`, or ConfigError."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                lowered = text.lower()
                if lowered not in {"true", "false"}:
                    raise self._refuse(text, "must be true or false")
                return lowered == "true"
            case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
                return self._check_bounds(text, self._parse_integer(text))
            case ConfigType.DOUBLE:
                return self._check_bounds(text, self._parse_double(text))
            case ConfigType.LIST:
                return self._parse_list(text)
            case ConfigType.STRING | ConfigType.PASSWORD:
                if self.choices and text not in self.choices:
                    raise self._refuse(text, f"must be {self.bounds}")
                return text
            case ConfigType.UNKNOWN:
                raise TypeError(f"{self.name} is declared without a type")

    def format(self, value: Value) -> str | None:
        """The text DescribeConfigs shows, as Kafka writes it."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case float():
                return repr(value).replace("e+", "E").replace("e", "E")
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

    def _parse_integer(self, text: str) -> int:
        bits = _BITS[self.type]
        if len(text) > _INTEGER_DIGITS_MAX or _INTEGER.fullmatch(text) is None:
            raise self._refuse(text, f"must be a whole number of {bits} bits")
        value = int(text)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise self._refuse(text, f"must be a whole number of {bits} bits")
        return value

    def _parse_double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self._refuse(text, "must be a number") from None
        if math.isnan(value) or "_" in text:
            raise self._refuse(text, "must be a number")
        return value

    def _parse_list(self, text: str) -> tuple[str, ...]:
        items = tuple(_COMMA.split(text)) if text else ()
        if self.replicas:
            if "".join(items) != "*" and any(_REPLICA.fullmatch(item) is None for item in items):
                raise self._refuse(text, f"must be {self.bounds}")
            return items
        if self.required and not items:
            raise self._refuse(text, "must not be empty")
        if "" in items:
            raise self._refuse(text, "must not have empty entries")
        if len(set(items)) != len(items):
            raise self._refuse(text, "must not name an entry twice")
        if self.choices and any(item not in self.choices for item in items):
            raise self._refuse(text, f"must be {self.bounds}")
        return items

    def _check_bounds(self, text: str, value: float) -> float:
        too_small = self.minimum is not None and value < self.minimum
        too_large = self.maximum is not None and value > self.maximum
        if (too_small or too_large) and value not in self.also:
            raise self._refuse(text, f"must be {self.bounds}")
        return value

    def _refuse(self, text: str, reason: str) -> ConfigError:
        shown = "(hidden)" if self.sensitive else text
        return ConfigError(f"{self.name}={shown}: {reason}")


def by_name(*groups: tuple[ConfigKey, ...]) -> Mapping[str, ConfigKey]:
    keys: dict[str, ConfigKey] = {}
    for group in groups:
        for key in group:
            if key.name in keys:
                raise ValueError(f"{key.name} is declared twice")
            keys[key.name] = key
    return dict(sorted(keys.items()))
