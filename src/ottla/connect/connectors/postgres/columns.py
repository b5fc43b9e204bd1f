"""PostgreSQL's types as Debezium maps them: the schema of a column, and its values from text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from ottla.connect.columns import Column, Flat, Single
from ottla.connect.connectors.postgres.catalog import TypeInfo
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    EPOCH_DAY,
    FLOAT64,
    INT32,
    INT64,
    SCALE,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    Struct,
    array_of,
    decimal_of,
    encode_decimal,
    from_millis,
    map_of,
    struct_of,
)
from ottla.connect.errors import DataError

_INFINITE_US: Final = 9223372036825200000
_MINUS_INFINITE_US: Final = -9223372036832400000
_INFINITE_DAYS: Final = 2147483647
_DAYS_PER_MONTH: Final = 365.25 / 12
_COMMON_ZONED: Final = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$"
_EPOCH: Final = datetime(1970, 1, 1)
_PLACE: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(\.\d+)?)?([+-]\d\d(?::\d\d){0,2})?")
_INTERVAL: Final = re.compile(r"([+-]?\d+) (year|mon|day)s?|([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')
_POINT_SCHEMA: Final = struct_of(
    ("x", FLOAT64),
    ("y", FLOAT64),
    ("wkb", BYTES.but(optional=True)),
    ("srid", INT32.but(optional=True)),
    name="io.debezium.data.geometry.Point",
).but(version=1)
_VARIABLE: Final = struct_of(
    ("scale", INT32), ("value", BYTES), name="io.debezium.data.VariableScaleDecimal"
).but(version=1)

Read = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Modes:
    """How types are written that can be written in several ways."""

    decimals: str
    times: str
    binaries: str
    intervals: str
    hstores: str
    money_digits: int
    placeholder: str
    includes_unknown: bool


@dataclass(frozen=True, slots=True)
class Mapped:
    schema: Schema
    read: Read
    empty: Any
    """Stands in for the value of a required column that is not known."""
    unavailable: Any
    """Stands in for a large value that an update left alone."""
    read_array: Callable[[Any], Any] | None = None
    """What `read` makes of each of a pa.StringArray, as another array; None where it has to be asked."""

    def column(self, schema: Schema, texts: Any) -> Column:
        """Null stays null."""
        array = None if self.read_array is None else self.read_array(texts)
        if array is not None:
            return Flat(schema, array)
        return Single(schema, [None if text is None else self.read(text) for text in texts.to_pylist()])


def mapped(
    kind: TypeInfo, modifier: int, modes: Modes, type_of: Callable[[int], TypeInfo | None]
) -> Mapped | None:
    """None for types that have no place in a record."""
    if kind.kind == "d":
        base = type_of(kind.base)
        return (
            None
            if base is None
            else mapped(base, kind.base_modifier if modifier < 0 else modifier, modes, type_of)
        )
    if kind.element:
        element = type_of(kind.element)
        items = None if element is None else mapped(element, modifier, modes, type_of)
        return None if items is None else _array(items, modes)
    if kind.kind == "e":
        schema = Schema(
            Kind.STRING,
            name="io.debezium.data.Enum",
            version=1,
            parameters=(("allowed", ",".join(kind.labels)),),
        )
        empty = kind.labels[0] if kind.labels else ""
        return Mapped(schema, str, empty, modes.placeholder, _as_they_are)
    make = _MAPPED.get(kind.name)
    if make is not None:
        return make(modifier, modes)
    if kind.kind == "r":
        return _text(modes)
    return _binary(modes, str.encode) if modes.includes_unknown else None


# Numbers


def _simple(
    schema: Schema, read: Read, empty: Any, read_array: Callable[[Any], Any] | None = None
) -> Callable[[int, Modes], Mapped]:
    return lambda modifier, modes: Mapped(schema, read, empty, empty, read_array)


def _whole(kind: str) -> Callable[[Any], Any]:
    return lambda texts: texts.cast(kind)


def _booleans(texts: Any) -> Any:
    import pyarrow.compute as pc

    from ottla.records.arrow_arrays import binary_scalar

    return pc.equal(texts.view("binary"), binary_scalar(b"t"))


def _as_they_are(texts: Any) -> Any:
    return texts


def _numeric(modifier: int, modes: Modes) -> Mapped:
    if modes.decimals == "double":
        return Mapped(FLOAT64, float, 0.0, 0.0)
    if modes.decimals == "string":
        return Mapped(STRING, str, "0", modes.placeholder)
    if modifier < 0:
        return Mapped(_VARIABLE, _read_variable, _read_variable("0"), None)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    # Eleven bits with a sign, since PostgreSQL 15.
    scale = scale - 0x800 if scale & 0x400 else scale
    schema = decimal_of(scale).but(
        parameters=(("connect.decimal.precision", str(precision)), (SCALE, str(scale)))
    )
    return Mapped(schema, _read_decimal, Decimal(0), None)


def _read_decimal(text: str) -> Decimal:
    if text[-1:].isalpha():
        raise DataError(
            f"the number {text} has no place in a Decimal: set decimal.handling.mode to string or double"
        )
    return Decimal(text)


def _read_variable(text: str) -> Struct:
    value = _read_decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return Struct(_VARIABLE, {"scale": scale, "value": encode_decimal(value, scale)})


def _money(modifier: int, modes: Modes) -> Mapped:
    def amount(text: str) -> Decimal:
        digits = re.sub(r"[^0-9.]", "", text)
        return Decimal(f"-{digits}" if "-" in text or text.startswith("(") else digits)

    if modes.decimals == "double":
        return Mapped(FLOAT64, lambda text: float(amount(text)), 0.0, 0.0)
    if modes.decimals == "string":
        return Mapped(STRING, lambda text: str(amount(text)), "0", modes.placeholder)
    return Mapped(decimal_of(modes.money_digits), amount, Decimal(0), None)


def _bits(modifier: int, modes: Modes) -> Mapped:
    if modifier == 1:
        return Mapped(BOOLEAN, lambda text: text == "1", False, False)
    schema = Schema(
        Kind.BYTES,
        name="io.debezium.data.Bits",
        version=1,
        parameters=(("length", str(modifier if modifier > 0 else 2147483647)),),
    )
    return Mapped(schema, _read_bits, b"", modes.placeholder.encode())


def _read_bits(text: str) -> bytes:
    """Little-endian, as Java's BitSet."""
    return int(text, 2).to_bytes((len(text) + 7) // 8, "little") if text else b""


# Text and bytes


def _named(name: str) -> Callable[[int, Modes], Mapped]:
    schema = Schema(Kind.STRING, name=name, version=1)
    return lambda modifier, modes: Mapped(schema, str, "", modes.placeholder, _as_they_are)


def _text(modes: Modes) -> Mapped:
    return Mapped(STRING, str, "", modes.placeholder, _as_they_are)


def _bytea(modifier: int, modes: Modes) -> Mapped:
    return _binary(modes, lambda text: bytes.fromhex(text[2:]))


def _binary(modes: Modes, read: Callable[[str], bytes]) -> Mapped:
    import base64

    match modes.binaries:
        case "base64":
            return Mapped(STRING, lambda text: base64.b64encode(read(text)).decode(), "", modes.placeholder)
        case "base64-url-safe":
            return Mapped(
                STRING, lambda text: base64.urlsafe_b64encode(read(text)).decode(), "", modes.placeholder
            )
        case "hex":
            return Mapped(STRING, lambda text: read(text).hex(), "", modes.placeholder)
        case _:
            return Mapped(BYTES, read, b"", modes.placeholder.encode())


def _hstore(modifier: int, modes: Modes) -> Mapped:
    import json

    if modes.hstores == "map":
        schema = map_of(STRING, STRING.but(optional=True))
        return Mapped(schema, _read_hstore, {}, {modes.placeholder: modes.placeholder})
    schema = Schema(Kind.STRING, name="io.debezium.data.Json", version=1)
    return Mapped(
        schema,
        lambda text: json.dumps(_read_hstore(text), ensure_ascii=False, separators=(",", ":")),
        "{}",
        json.dumps({modes.placeholder: modes.placeholder}),
    )


def _read_hstore(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for match in _HSTORE.finditer(text):
        value = match[2]
        found[re.sub(r"\\(.)", r"\1", match[1])] = None if value is None else re.sub(r"\\(.)", r"\1", value)
    return found


# Times


def _micros(text: str) -> int:
    """Microseconds since 1970, of a place in time without a zone or in UTC. Python's years end at 9999."""
    if text.endswith("infinity"):
        return _MINUS_INFINITE_US if text.startswith("-") else _INFINITE_US
    try:
        return (datetime.fromisoformat(text[:26]) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        days, match = _far_days(text)
        seconds = (int(match[4] or 0) * 60 + int(match[5] or 0)) * 60 + int(match[6] or 0)
        return (days * 86400 + seconds) * 1_000_000 + round(float(match[7] or 0) * 1_000_000)


def _days(text: str) -> int:
    if text.endswith("infinity"):
        return -_INFINITE_DAYS - 1 if text.startswith("-") else _INFINITE_DAYS
    try:
        return (date.fromisoformat(text) - EPOCH_DAY).days
    except ValueError:
        return _far_days(text)[0]


def _far_days(text: str) -> tuple[int, re.Match[str]]:
    """Before Christ and after 9999: the calendar repeats every 400 years of 146,097 days."""
    match = _PLACE.match(text)
    if match is None:
        raise DataError(f"{text} is not a date as PostgreSQL writes it in its DateStyle ISO")
    year = int(match[1])
    year = 1 - year if text.endswith(" BC") else year
    cycles, place = divmod(year - 1, 400)
    near = date(place + 1, int(match[2]), int(match[3]))
    return (near - EPOCH_DAY).days + cycles * 146_097, match


def _time_micros(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000_000 + round(float(seconds) * 1_000_000)


def _date(modifier: int, modes: Modes) -> Mapped:
    if modes.times == "connect":
        return Mapped(DATE_SCHEMA, lambda text: EPOCH_DAY + timedelta(days=_days(text)), EPOCH_DAY, EPOCH_DAY)
    return Mapped(Schema(Kind.INT32, name="io.debezium.time.Date", version=1), _days, 0, 0)


def _time(modifier: int, modes: Modes) -> Mapped:
    if modes.times == "connect":
        return Mapped(
            TIME_SCHEMA,
            lambda text: (from_millis(_time_micros(text) // 1000)).time(),
            from_millis(0).time(),
            from_millis(0).time(),
        )
    if modes.times == "adaptive" and 0 <= modifier <= 3:
        schema = Schema(Kind.INT32, name="io.debezium.time.Time", version=1)
        return Mapped(schema, lambda text: _time_micros(text) // 1000, 0, 0)
    return Mapped(Schema(Kind.INT64, name="io.debezium.time.MicroTime", version=1), _time_micros, 0, 0)


def _timestamp(modifier: int, modes: Modes) -> Mapped:
    if modes.times == "connect":
        return Mapped(
            TIMESTAMP_SCHEMA, lambda text: from_millis(_micros(text) // 1000), from_millis(0), from_millis(0)
        )
    if 0 <= modifier <= 3:
        schema = Schema(Kind.INT64, name="io.debezium.time.Timestamp", version=1)
        return Mapped(schema, lambda text: _micros(text) // 1000, 0, 0)
    return Mapped(Schema(Kind.INT64, name="io.debezium.time.MicroTimestamp", version=1), _micros, 0, 0)


def _zoned_timestamp(modifier: int, modes: Modes) -> Mapped:
    schema = Schema(Kind.STRING, name="io.debezium.time.ZonedTimestamp", version=1)
    return Mapped(schema, _read_zoned, "1970-01-01T00:00:00Z", modes.placeholder, _zoned_array)


def _read_zoned(text: str) -> str:
    """The session is in UTC, so all of them end with +00."""
    if text.endswith("infinity"):
        return text
    era = " BC" if text.endswith(" BC") else ""
    return text.removesuffix(" BC").removesuffix("+00").replace(" ", "T") + "Z" + era


def _zoned_array(texts: Any) -> Any:
    """Of years with four digits; the others have to be looked at."""
    import pyarrow.compute as pc

    from ottla.records.arrow_arrays import binary_scalar

    zone = "+00"
    if not pc.all(pc.match_substring_regex(texts, _COMMON_ZONED)).as_py():
        return None
    parted = pc.binary_replace_slice(texts.view("binary"), start=10, stop=11, replacement=b"T")
    bare = pc.binary_slice(parted, 0, -len(zone))
    return pc.binary_join_element_wise(bare, binary_scalar(b"Z"), binary_scalar(b"")).view("string")


def _zoned_time(modifier: int, modes: Modes) -> Mapped:
    schema = Schema(Kind.STRING, name="io.debezium.time.ZonedTime", version=1)
    return Mapped(schema, _read_zoned_time, "00:00:00Z", modes.placeholder)


def _read_zoned_time(text: str) -> str:
    if text.startswith("24:"):
        text = "00:" + text[3:]
    try:
        moment = datetime.fromisoformat(f"2000-01-01T{text}").astimezone(UTC).time()
    except ValueError:
        return text
    return (
        moment.isoformat().rstrip("0").rstrip(".") + "Z" if moment.microsecond else moment.isoformat() + "Z"
    )


def _interval(modifier: int, modes: Modes) -> Mapped:
    if modes.intervals == "string":
        schema = Schema(Kind.STRING, name="io.debezium.time.Interval", version=1)
        return Mapped(schema, _iso_interval, "P0Y0M0DT0H0M0S", modes.placeholder)
    schema = Schema(Kind.INT64, name="io.debezium.time.MicroDuration", version=1)
    return Mapped(schema, _interval_micros, 0, 0)


def _interval_parts(text: str) -> tuple[int, int, int, int, Decimal]:
    """Years, months, days, minutes and seconds, each with its sign."""
    found = {"year": 0, "mon": 0, "day": 0}
    minutes, seconds = 0, Decimal(0)
    for match in _INTERVAL.finditer(text):
        if match[2]:
            found[match[2]] = int(match[1])
        else:
            sign = -1 if match[3] == "-" else 1
            minutes = sign * (int(match[4]) * 60 + int(match[5]))
            seconds = sign * Decimal(match[6])
    return found["year"], found["mon"], found["day"], minutes, seconds


def _interval_micros(text: str) -> int:
    years, months, days, minutes, seconds = _interval_parts(text)
    whole = (years * 12 + months) * _DAYS_PER_MONTH * 86400 * 1e6
    return int(whole) + (days * 86400 + minutes * 60) * 1_000_000 + int(seconds * 1_000_000)


def _iso_interval(text: str) -> str:
    years, months, days, minutes, seconds = _interval_parts(text)
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else ""
    shown = f"{seconds:f}".rstrip("0").rstrip(".") if "." in f"{seconds:f}" else f"{seconds:f}"
    return f"P{years}Y{months}M{days}DT{sign if hours else ''}{hours}H{sign if rest else ''}{rest}M{shown}S"


# Others


def _point(modifier: int, modes: Modes) -> Mapped:
    return Mapped(_POINT_SCHEMA, _read_point, _read_point("(0,0)"), None)


def _read_point(text: str) -> Struct:
    import struct

    x, y = (float(part) for part in text.strip("()").split(","))
    return Struct(_POINT_SCHEMA, {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y)})


def _array(items: Mapped, modes: Modes) -> Mapped:
    match items.schema.kind:
        case Kind.STRING:
            unavailable: Any = [modes.placeholder]
        case Kind.INT16 | Kind.INT32 | Kind.INT64:
            unavailable = list(modes.placeholder.encode())
        case _:
            unavailable = []
    schema = array_of(items.schema.but(optional=True))
    return Mapped(schema, lambda text: read_array(text, items.read), [], unavailable)


def read_array(text: str, read: Read) -> list[Any]:
    """`{1,NULL,"a,b"}`; of several dimensions, lists in lists."""
    if text.startswith("["):
        # Bounds that are not the usual ones stand before it.
        text = text.partition("=")[2]
    found, _ = _read_items(text, 1, read)
    return found


def _read_items(text: str, at: int, read: Read) -> tuple[list[Any], int]:
    items: list[Any] = []
    while True:
        match text[at]:
            case "}":
                return items, at + 1
            case ",":
                at += 1
            case "{":
                inner, at = _read_items(text, at + 1, read)
                items.append(inner)
            case '"':
                part, at = _read_quoted(text, at + 1)
                items.append(read(part))
            case _:
                end = at
                while text[end] not in ",}":
                    end += 1
                part, at = text[at:end], end
                items.append(None if part == "NULL" else read(part))


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        parts.append(text[at])
        at += 1
    return "".join(parts), at + 1


_MAPPED: Final[Mapping[str, Callable[[int, Modes], Mapped]]] = {
    "bool": _simple(BOOLEAN, lambda text: text == "t", False, _booleans),
    "int2": _simple(Schema(Kind.INT16), int, 0, _whole("int16")),
    "int4": _simple(INT32, int, 0, _whole("int32")),
    "int8": _simple(INT64, int, 0, _whole("int64")),
    "oid": _simple(INT64, int, 0, _whole("int64")),
    "float4": _simple(Schema(Kind.FLOAT32), float, 0.0),
    "float8": _simple(FLOAT64, float, 0.0),
    "numeric": _numeric,
    "money": _money,
    "bit": _bits,
    "varbit": _bits,
    "bytea": _bytea,
    "date": _date,
    "time": _time,
    "timetz": _zoned_time,
    "timestamp": _timestamp,
    "timestamptz": _zoned_timestamp,
    "interval": _interval,
    "json": _named("io.debezium.data.Json"),
    "jsonb": _named("io.debezium.data.Json"),
    "xml": _named("io.debezium.data.Xml"),
    "uuid": _named("io.debezium.data.Uuid"),
    "ltree": _named("io.debezium.data.Ltree"),
    "tsvector": _named("io.debezium.data.Tsvector"),
    "hstore": _hstore,
    "point": _point,
    **dict.fromkeys(
        (
            "text",
            "varchar",
            "bpchar",
            "char",
            "name",
            "citext",
            "inet",
            "cidr",
            "macaddr",
            "macaddr8",
            "isbn",
        ),
        lambda modifier, modes: _text(modes),
    ),
}
