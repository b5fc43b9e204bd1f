"""Records made up: rows of names, numbers and moments at a rate, for demonstrations and for load.

A row's fields depend on the seed and its number alone, so the same settings give the same rows.
"""

from __future__ import annotations

import random
import re
import string
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from ottla.connect.data import (
    BOOLEAN,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Schema,
    Struct,
    struct_of,
)
from ottla.connect.errors import ConnectError, SettingError
from ottla.connect.plugin import Config, SourceConnector, SourceTask
from ottla.connect.records import SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, not_empty, one_of

Make = Callable[[random.Random, int], Any]
"""Of the row's own random numbers and its number."""

_IDLE_S: Final = 0.5
_FIELD: Final = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<kind>\w+)\s*(?:\((?P<given>.*)\))?")
_FIRST: Final = "Ada Alan Barbara Edsger Frances Grace Hedy Jean Katherine Ken Linus Radia".split()  # noqa: SIM905
_LAST: Final = "Allen Bartik Berners Dijkstra Hamilton Hopper Johnson Lamarr Liskov Lovelace Turing".split()  # noqa: SIM905
_CITIES: Final = "Berlin Bogota Cairo Delhi Kyoto Lagos Lima London Nairobi Oslo Paris Seoul Sydney".split()  # noqa: SIM905
_COUNTRIES: Final = "AU BR CO DE EG FR GB IN JP KE KR NG NO PE US".split()  # noqa: SIM905
_WORDS: Final = "amber brook cedar delta ember fjord grove harbour iris juniper kelp lagoon meadow".split()  # noqa: SIM905
_QUICK: Final = {
    "users": "id=sequence,name=name,email=email,city=city,country=country,age=int(18..90)",
    "orders": "id=sequence,user=int(1..999),amount=double(1..99),state=choice(new|paid|sent),at=timestamp",
    "pageviews": "view=sequence,user=int(1..1000),page=choice(/|/cart|/help|/shop),ip=ip,at=timestamp",
}


def _range(given: str, read: Callable[[str], Any], otherwise: str) -> tuple[Any, Any]:
    low, separator, high = (given or otherwise).partition("..")
    if not separator or read(high) < read(low):
        raise ValueError("a range is two numbers with two dots between them, the lower first")
    return read(low), read(high)


def _integer(given: str) -> Make:
    low, high = _range(given, int, "0..1000000")
    return lambda rng, row: rng.randint(low, high)


def _double(given: str) -> Make:
    low, high = _range(given, float, "0..1")
    return lambda rng, row: rng.uniform(low, high)


def _boolean(given: str) -> Make:
    share = float(given or 0.5)
    return lambda rng, row: rng.random() < share


def _text(given: str) -> Make:
    length = int(given or 12)
    return lambda rng, row: "".join(rng.choices(string.ascii_lowercase, k=length))


def _timestamp(given: str) -> Make:
    """Now, or between two days."""
    if not given:
        return lambda rng, row: datetime.now(UTC).replace(microsecond=0)
    low, high = _range(given, lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC), "")
    return lambda rng, row: low + (high - low) * rng.random()


def _sequence(given: str) -> Make:
    first = int(given or 0)
    return lambda rng, row: first + row


def _choice(given: str) -> Make:
    if not given:
        raise ValueError("choice needs what to choose from, as choice(one|two)")
    return _one_of(given.split("|"))


def _one_of(words: Sequence[str]) -> Make:
    return lambda rng, row: rng.choice(words)


def _constant(given: str) -> Make:
    return lambda rng, row: given


def _alone(make: Make) -> Callable[[str], Make]:
    """A kind that takes nothing in parentheses."""

    def made(given: str) -> Make:
        if given:
            raise ValueError("it takes nothing in parentheses")
        return make

    return made


def _full_name(rng: random.Random, row: int) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"


def _email(rng: random.Random, row: int) -> str:
    return f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}{rng.randint(1, 999)}@example.com".lower()


_KINDS: Final[Mapping[str, tuple[Schema, Callable[[str], Make]]]] = {
    "boolean": (BOOLEAN, _boolean),
    "choice": (STRING, _choice),
    "city": (STRING, _alone(_one_of(_CITIES))),
    "constant": (STRING, _constant),
    "country": (STRING, _alone(_one_of(_COUNTRIES))),
    "double": (FLOAT64, _double),
    "email": (STRING, _alone(_email)),
    "int": (INT64, _integer),
    "ip": (STRING, _alone(lambda rng, row: ".".join(str(rng.randint(1, 254)) for _ in range(4)))),
    "name": (STRING, _alone(_full_name)),
    "sentence": (STRING, _alone(lambda rng, row: " ".join(rng.choices(_WORDS, k=8)).capitalize() + ".")),
    "sequence": (INT64, _sequence),
    "string": (STRING, _text),
    "timestamp": (TIMESTAMP_SCHEMA, _timestamp),
    "uuid": (STRING, _alone(lambda rng, row: str(uuid.UUID(int=rng.getrandbits(128), version=4)))),
    "word": (STRING, _alone(_one_of(_WORDS))),
}


class Rows:
    """What `fields` describe. Raises SettingError for what they do not."""

    def __init__(self, fields: Sequence[str], seed: int) -> None:
        self._seed = seed
        self._makes: dict[str, Make] = {}
        schemas: list[tuple[str, Schema]] = []
        for text in fields:
            name, schema, make = _read_field(text)
            if name in self._makes:
                raise SettingError.of("fields", text, f"{name} is there twice")
            self._makes[name] = make
            schemas.append((name, schema))
        self.schema: Final = struct_of(*schemas)
        self._rng = random.Random()  # noqa: S311 - not for secrets

    def row(self, number: int) -> Struct:
        self._rng.seed(self._seed << 64 | number)
        return Struct(self.schema, {name: make(self._rng, number) for name, make in self._makes.items()})


def _read_field(text: str) -> tuple[str, Schema, Make]:
    match = _FIELD.fullmatch(text)
    if match is None or match["kind"] not in _KINDS:
        known = ", ".join(_KINDS)
        raise SettingError.of("fields", text, f"a field is name=kind or name=kind(…), kinds are {known}")
    schema, make = _KINDS[match["kind"]]
    try:
        return match["name"], schema, make(match["given"] or "")
    except ValueError as error:
        raise SettingError.of("fields", text, str(error)) from None


class DatagenTask(SourceTask):
    def start(self, given: Config) -> None:
        config = Datagen.settings.parse(given)
        self._topic = config["topic"]
        self._rows = rows_of(config)
        self._key = config["key.field"]
        self._rate = config["rate"]
        self._count = config["count"]
        self._rows_max = config["batch.size"]
        stored = self.context.offset(self._place)
        self._next = 0 if stored is None else int(stored["row"]) + 1
        self._due, self._counted_s = 0.0, time.monotonic()

    @property
    def _place(self) -> dict[str, str]:
        return {"topic": self._topic}

    def poll(self) -> Sequence[SourceRecord]:
        wanted = self._wanted()
        if not wanted:
            self.context.wait(min(_IDLE_S, 1 / self._rate) if self._rate else _IDLE_S)
            return ()
        now_ms = time.time_ns() // 1_000_000
        records = [self._record(number, now_ms) for number in range(self._next, self._next + wanted)]
        self._next += wanted
        return records

    def _wanted(self) -> int:
        """How many rows are due. A second's worth at most: whoever was paused does not make up for it."""
        left: int = self._rows_max if self._count is None else min(self._rows_max, self._count - self._next)
        if not self._rate:
            return max(0, left)
        now_s = time.monotonic()
        self._due = min(self._due + (now_s - self._counted_s) * self._rate, max(1.0, self._rate))
        self._counted_s = now_s
        wanted = max(0, min(left, int(self._due)))
        self._due -= wanted
        return wanted

    def _record(self, number: int, now_ms: int) -> SourceRecord:
        value = self._rows.row(number)
        declared = None if self._key is None else value.schema.field(self._key)
        return SourceRecord(
            topic=self._topic,
            key_schema=None if declared is None else declared.schema,
            key=None if declared is None else value.get(declared.name),
            value_schema=value.schema,
            value=value,
            timestamp_ms=now_ms,
            source_partition=self._place,
            source_offset={"row": number},
        )


def rows_of(config: Mapping[str, Any]) -> Rows:
    """Raises SettingError."""
    fields = config["fields"] or _QUICK[config["quickstart"]].split(",")
    rows = Rows(fields, config["seed"])
    key = config["key.field"]
    if key is not None and rows.schema.field(key) is None:
        raise SettingError.of("key.field", key, "none of the fields has this name")
    return rows


class Datagen(SourceConnector):
    guarantee: ClassVar[str] = (
        "Exactly once with `exactly.once.source.support`, else at least once: a row depends on the seed and "
        "its number alone, and the number of the last one is the offset. Fields of the kind `timestamp` "
        "without a range are the time at which they are made."
    )
    settings: ClassVar[Settings] = Settings(
        Setting("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", not_empty),
        Setting(
            "fields",
            Type.LIST,
            [],
            Importance.HIGH,
            "What a row has, as `id=sequence, age=int(18..90), state=choice(new|paid)`. Kinds: "
            f"{', '.join(_KINDS)}.",
        ),
        Setting(
            "quickstart",
            Type.STRING,
            "users",
            Importance.MEDIUM,
            f"Rows that are there already, where no `fields` are given: {', '.join(_QUICK)}.",
            one_of(*_QUICK),
        ),
        Setting("key.field", Type.STRING, None, Importance.MEDIUM, "The field whose value is the key."),
        Setting(
            "rate", Type.DOUBLE, 10.0, Importance.HIGH, "Rows a second; 0 for as many as go.", at_least(0)
        ),
        Setting("count", Type.LONG, None, Importance.MEDIUM, "How many rows in all; without one, no end."),
        Setting("seed", Type.LONG, 0, Importance.LOW, "Other rows for another one.", at_least(0)),
        Setting("batch.size", Type.INT, 1000, Importance.LOW, "The most rows at a time.", at_least(1)),
    )
    task_class = DatagenTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given]

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        try:
            rows_of(self.settings.parse(given))
        except SettingError as error:
            return {"key.field" if "key.field" in str(error) else "fields": [str(error)]}
        return {}

    def is_exactly_once(self, given: Config) -> bool:
        return True

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for partition, offset in offsets:
            if "topic" not in partition:
                raise ConnectError("Partition objects should contain the key 'topic'")
            row = None if offset is None else offset.get("row")
            if offset is not None and (not isinstance(row, int) or isinstance(row, bool) or row < 0):
                raise ConnectError("Offset objects should either be null or have a number of a row as 'row'")
