"""Serdes: how keys and values become bytes and back.

The number formats are those of Kafka's Java serdes (big-endian), so that both read each other's topics.
Wherever a serde is expected, a Python type does as well: ``str``, ``int`` (64 bit), ``float`` (64 bit),
``bytes``, ``dict`` and ``list`` (JSON), or a dataclass (JSON, checked field by field; others are ignored).
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import struct
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, cast

from ottla.client.schema_registry import RegistryUnreachable
from ottla.streams.errors import SerdeError
from ottla.streams.records import Change, Window, Windowed


@dataclass(frozen=True, slots=True)
class Serde:
    """A pair of functions. ``None`` never reaches them: it is a null key or a tombstone."""

    name: str
    writer: Callable[[Any], bytes]
    reader: Callable[[bytes], Any]
    # The type as Spark names it, where a column expression can work on the value without Python.
    spark_type: str | None = None
    # What it lacks to write with; empty where it lacks nothing.
    missing: str = ""
    # The type of values that come back from bytes as they went in, and that nobody can change in place.
    exact: type | None = None
    # Reads many at once, for less than it costs to read each.
    read_many: Callable[[list[bytes]], Iterable[Any]] | None = None

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return self.writer(value)
        except (SerdeError, RegistryUnreachable):
            raise
        except Exception as error:
            raise SerdeError(
                f"{value!r} ({type(value).__name__}) cannot be written as {self.name}: {error}; "
                "give the operation a serde that fits"
            ) from error

    def quick_writer(self) -> Callable[[Any], bytes | None]:
        """As ``serialize``, for where it is called all the time: what goes well takes the short way."""
        write, serialize = self.writer, self.serialize

        def quickly(value: Any) -> bytes | None:
            try:
                return None if value is None else write(value)
            except (SerdeError, RegistryUnreachable):
                raise
            except Exception:
                # It fails again, and says what of.
                return serialize(value)

        return quickly

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return self.reader(data)
        except (SerdeError, RegistryUnreachable):
            raise
        except Exception as error:
            shown = data if len(data) <= 40 else data[:40] + b"..."
            raise SerdeError(f"{shown!r} ({len(data)} bytes) is not {self.name}: {error}") from error

    def deserialize_all(self, column: list[bytes | None]) -> list[Any]:
        """Raises whatever the reader raises, without saying which of them it was."""
        read = self.reader
        if None in column:
            return [None if data is None else read(data) for data in column]
        present = cast("list[bytes]", column)
        return list(map(read, present) if self.read_many is None else self.read_many(present))


def _number(layout: str, name: str, spark_type: str, *, exact: type | None) -> Serde:
    # Not a compiled Struct: serdes travel to Spark's workers, and those cannot be pickled.
    size = struct.calcsize(layout)

    def write(value: Any) -> bytes:
        return struct.pack(layout, value)

    def read(data: bytes) -> Any:
        if len(data) != size:
            raise SerdeError(f"{data!r} is not {name}: it has {len(data)} bytes instead of {size}")
        return struct.unpack(layout, data)[0]

    def read_many(column: list[bytes]) -> Iterable[Any]:
        if set(map(len, column)) - {size}:
            return map(read, column)
        return struct.unpack(f"{layout[0]}{len(column)}{layout[1]}", b"".join(column))

    return Serde(name, write, read, spark_type, exact=exact, read_many=read_many)


def _write_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("it is not text")
    return value.encode()


def _write_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("it is not bytes")
    return bytes(value)


def _read_text(data: bytes) -> str:
    return data.decode()


def _read_texts(column: list[bytes]) -> Iterable[str]:
    return map(bytes.decode, column)


def _read_bytes(data: bytes) -> bytes:
    return data


# Of functions with a name: a serde that came to a worker is equal to the one there.
_STRING = Serde("string", _write_text, _read_text, "string", exact=str, read_many=_read_texts)
_BYTES = Serde("bytes", _write_bytes, _read_bytes, "binary", exact=bytes, read_many=list)
_LONG = _number(">q", "long", "bigint", exact=int)
_INTEGER = _number(">i", "integer", "int", exact=int)
_SHORT = _number(">h", "short", "smallint", exact=int)
_DOUBLE = _number(">d", "double", "double", exact=float)
_FLOAT = _number(">f", "float", "float", exact=None)
_BOOLEAN = _number(">?", "boolean", "boolean", exact=bool)
_UUID = Serde("uuid", lambda value: str(value).encode(), lambda data: uuid.UUID(data.decode()), None)


def _json_default(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _write_json(value: Any) -> bytes:
    # Sorted keys: equal values must become equal bytes, since stores and hashes compare bytes.
    return json.dumps(value, default=_json_default, separators=(",", ":"), sort_keys=True).encode()


_JSON = Serde("JSON", _write_json, json.loads, "string")


@dataclass(frozen=True, slots=True)
class Annotations:
    """The types of the fields of dataclasses, and whether a field that is none of them is an error."""

    types: Mapping[type, Mapping[str, Any]]
    strict: bool = False


def annotations_of(kind: Any, strict: bool = False) -> Annotations:
    """Of a type and all it is made of. Resolved where the program is: a worker has the classes, but not the
    module in which annotations that are text could be looked up."""
    found: dict[type, Mapping[str, Any]] = {}
    waiting = [kind]
    while waiting:
        each = waiting.pop()
        waiting += typing.get_args(each)
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each not in found:
            try:
                found[each] = typing.get_type_hints(each)
            except NameError as error:
                raise SerdeError(
                    f"{each.__name__} has a field of a type that is not known here: {error}; define the type "
                    "in the module of the class, above where the serde is used"
                ) from error
            waiting += found[each].values()
    return Annotations(found, strict)


def convert(value: Any, wanted: Any, path: str, annotations: Annotations) -> Any:
    """Turn decoded JSON or Avro into an annotated type, naming the field where it does not fit."""
    if wanted is Any:
        return value
    origin = typing.get_origin(wanted)
    arguments = typing.get_args(wanted)
    if origin in {typing.Union, types.UnionType}:
        return _convert_union(value, arguments, path, annotations)
    if origin in {list, tuple, set, frozenset}:
        if not isinstance(value, list | tuple):
            raise SerdeError(f"{path} is {value!r}, expected a list")
        item = arguments[0] if arguments else Any
        return origin(
            convert(each, item, f"{path}[{index}]", annotations) for index, each in enumerate(value)
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise SerdeError(f"{path} is {value!r}, expected an object")
        item = arguments[1]
        return {name: convert(each, item, f"{path}.{name}", annotations) for name, each in value.items()}
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _convert_fields(value, wanted, path, annotations)
    return _convert_scalar(value, wanted, path)


def _convert_union(value: Any, arguments: tuple[Any, ...], path: str, annotations: Annotations) -> Any:
    if value is None and type(None) in arguments:
        return None
    # The one that knows all the fields, if there is such a one, rather than the first that knows some.
    for attempt in dict.fromkeys((True, annotations.strict)):
        for candidate in arguments:
            if candidate is not type(None):
                try:
                    return convert(value, candidate, path, Annotations(annotations.types, attempt))
                except SerdeError:
                    continue
    names = ", ".join(getattr(argument, "__name__", str(argument)) for argument in arguments)
    raise SerdeError(f"{path} is {value!r}, expected one of {names}")


def _convert_fields(value: Any, wanted: type, path: str, annotations: Annotations) -> Any:
    if not isinstance(value, Mapping):
        raise SerdeError(f"{path} is {value!r}, expected the fields of {wanted.__name__}")
    hints = annotations.types[wanted]
    known = {field.name: field for field in dataclasses.fields(wanted)}
    unknown = sorted(set(value) - set(known)) if annotations.strict else ()
    if unknown:
        raise SerdeError(
            f"{path} has the unknown field {unknown[0]!r}; {wanted.__name__} has {sorted(known)}"
        )
    fields: dict[str, Any] = {}
    for name, field in known.items():
        if name in value:
            fields[name] = convert(value[name], hints[name], f"{path}.{name}", annotations)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SerdeError(f"{path} lacks the field {name!r} of {wanted.__name__}")
    return wanted(**fields)


def _convert_scalar(value: Any, wanted: Any, path: str) -> Any:
    parse = _PARSED.get(wanted)
    if parse is None and isinstance(wanted, type) and issubclass(wanted, Enum):
        parse = wanted
    if parse is not None:
        try:
            return parse(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise SerdeError(f"{path} is {value!r}, expected {wanted.__name__}: {error}") from error
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
        return value
    raise SerdeError(f"{path} is {value!r}, expected {getattr(wanted, '__name__', wanted)}")


# Types that JSON writes as text.
_PARSED: dict[Any, Callable[[Any], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    uuid.UUID: uuid.UUID,
}


@functools.cache
def _json_of(kind: type, strict: bool = False) -> Serde:
    annotations = annotations_of(kind, strict)
    return Serde(
        f"{'strict ' if strict else ''}JSON of {kind.__name__}",
        _write_json,
        lambda data: convert(json.loads(data), kind, kind.__name__, annotations),
        "string",
    )


@functools.cache
def _one_of(kinds: tuple[type, ...]) -> Serde:
    by_name = {kind.__name__: kind for kind in kinds}
    known = " or ".join(by_name)
    for kind in kinds:
        if not dataclasses.is_dataclass(kind):
            raise SerdeError(f"one_of takes dataclasses, and {kind.__name__} is none")
    if len(by_name) < len(kinds):
        raise SerdeError(f"one_of({known}): a value is known by the name of its class, and two have one name")
    annotations = {name: annotations_of(kind) for name, kind in by_name.items()}

    def write(value: Any) -> bytes:
        name = type(value).__name__
        if name not in by_name:
            raise TypeError(f"it is not {known}")
        return _write_json({name: value})

    def read(data: bytes) -> Any:
        found = json.loads(data)
        if not isinstance(found, dict) or len(found) != 1 or (name := next(iter(found))) not in by_name:
            raise ValueError("it has to be an object with one field, named for the class")
        return convert(found[name], by_name[name], name, annotations[name])

    return Serde(f"JSON of {known}", write, read, "string")


def _avro(schema: Mapping[str, Any] | str, kind: type | None, strict: bool) -> Serde:
    declared = json.loads(schema) if isinstance(schema, str) else schema
    return _avro_of(json.dumps(declared, sort_keys=True), kind, strict)


@functools.cache
def _avro_of(schema: str, kind: type | None, strict: bool) -> Serde:
    """One serde for one schema, however often and in whichever form it is given: serdes are compared."""
    try:
        import fastavro
    except ImportError as error:
        raise SerdeError("Avro needs the fastavro package: pip install 'ottla[avro]'") from error
    declared = json.loads(schema)
    parsed = fastavro.parse_schema(declared)
    name = str(declared.get("name", declared.get("type")))
    annotations = annotations_of(kind, strict)

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        plain = dataclasses.asdict(value) if kind is not None else value
        fastavro.schemaless_writer(out, parsed, plain)
        return out.getvalue()

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, parsed, None)
        if source.tell() != len(data):
            raise SerdeError(f"{len(data) - source.tell()} bytes are left over: the schema does not fit")
        return value if kind is None else convert(value, kind, kind.__name__, annotations)

    return Serde(f"Avro {name}", write, read, None)


class Serdes:
    """The serdes that come with Ottla."""

    @staticmethod
    def string() -> Serde:
        return _STRING

    @staticmethod
    def bytes() -> Serde:
        return _BYTES

    @staticmethod
    def long() -> Serde:
        return _LONG

    @staticmethod
    def integer() -> Serde:
        return _INTEGER

    @staticmethod
    def short() -> Serde:
        return _SHORT

    @staticmethod
    def double() -> Serde:
        return _DOUBLE

    @staticmethod
    def float() -> Serde:
        return _FLOAT

    @staticmethod
    def boolean() -> Serde:
        return _BOOLEAN

    @staticmethod
    def uuid() -> Serde:
        return _UUID

    @staticmethod
    def json(kind: type | None = None, *, strict: bool = False) -> Serde:
        """JSON; with a dataclass (or any annotated type) values are checked and become instances of it.

        Fields that the dataclass does not have are ignored, as those who write them may know more by now;
        with `strict` they are errors.
        """
        return _JSON if kind is None else _json_of(kind, strict)

    @staticmethod
    def one_of(*kinds: type) -> Serde:
        """JSON of several dataclasses in one topic: what a value is stands before it, `{"Order": {…}}`.

        For streams of different events that are merged and then repartitioned, or kept, as one.
        """
        if not kinds:
            raise SerdeError("one_of takes the dataclasses that values may be")
        return _one_of(kinds)

    @staticmethod
    def avro(schema: Mapping[str, Any] | str, kind: type | None = None, *, strict: bool = False) -> Serde:
        """Avro without container or registry framing; with a dataclass values become instances of it.

        Those of a registry are `ottla.streams.SchemaRegistry`'s.
        """
        return _avro(schema, kind, strict)

    @staticmethod
    def of(kind: Serde | type) -> Serde:
        """The serde of a Python type; a serde stays what it is."""
        if isinstance(kind, Serde):
            return kind
        plain = _BY_TYPE.get(kind)
        if plain is not None:
            return plain
        if dataclasses.is_dataclass(kind):
            return _json_of(kind)
        raise SerdeError(
            f"no serde is known for {kind!r}: use one of ottla.streams.Serdes or Serde(name, write, read)"
        )

    @staticmethod
    def time_windowed(key: Serde | type, size_ms: int | None = None) -> Serde:
        """The key of a time-windowed table as Kafka writes it: key bytes, then the window's start."""
        return time_windowed_serde(Serdes.of(key), size_ms)

    @staticmethod
    def session_windowed(key: Serde | type) -> Serde:
        """The key of a session-windowed table as Kafka writes it: key bytes, end, start."""
        return session_windowed_serde(Serdes.of(key))


_BY_TYPE: dict[Any, Serde] = {
    str: _STRING,
    bytes: _BYTES,
    int: _LONG,
    float: _DOUBLE,
    bool: _BOOLEAN,
    dict: _JSON,
    list: _JSON,
    uuid.UUID: _UUID,
}


def time_windowed_serde(key: Serde, size_ms: int | None) -> Serde:
    def write(value: Windowed) -> bytes:
        return (key.serialize(value.key) or b"") + struct.pack(">q", value.window.start_ms)

    def read(data: bytes) -> Windowed:
        (start,) = struct.unpack(">q", data[-8:])
        end = (1 << 63) - 1 if size_ms is None else min(start + size_ms, (1 << 63) - 1)
        return Windowed(key.deserialize(data[:-8]), Window(start, end))

    return Serde(f"time window of {key.name}", write, read, missing=key.missing)


def session_windowed_serde(key: Serde) -> Serde:
    def write(value: Windowed) -> bytes:
        return (key.serialize(value.key) or b"") + struct.pack(
            ">qq", value.window.end_ms, value.window.start_ms
        )

    def read(data: bytes) -> Windowed:
        end, start = struct.unpack(">qq", data[-16:])
        return Windowed(key.deserialize(data[:-16]), Window(start, end))

    return Serde(f"session window of {key.name}", write, read, missing=key.missing)


def change_serde(value: Serde) -> Serde:
    """Old and new value of a table update on its way through a repartition topic."""

    def write(change: Change) -> bytes:
        new, old = value.serialize(change.new), value.serialize(change.old)
        flags = (new is not None) | (old is not None) << 1
        return struct.pack(">BI", flags, len(new or b"")) + (new or b"") + (old or b"")

    def read(data: bytes) -> Change:
        flags, size = struct.unpack_from(">BI", data)
        new = data[5 : 5 + size] if flags & 1 else None
        old = data[5 + size :] if flags & 2 else None
        return Change(value.deserialize(new), value.deserialize(old))

    return Serde(f"change of {value.name}", write, read, missing=value.missing)
