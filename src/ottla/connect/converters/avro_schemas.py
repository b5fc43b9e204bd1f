"""Schemas of Connect as schemas of Avro and back, by the rules of Confluent's AvroConverter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.data import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Field,
    Kind,
    Schema,
    Struct,
    decimal_of,
)
from ottla.connect.errors import DataError

_NAMESPACE: Final = "io.confluent.connect.avro"
_DEFAULT_NAME: Final = f"{_NAMESPACE}.ConnectDefault"
_ENTRY: Final = f"{_NAMESPACE}.ConnectDefaultMapEntry"
_UNION: Final = f"{_NAMESPACE}.Union"
_PRECISION: Final = 64
_TYPES: Final = {
    Kind.INT8: "int",
    Kind.INT16: "int",
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
}
_KINDS: Final = {
    "int": Kind.INT32,
    "long": Kind.INT64,
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "boolean": Kind.BOOLEAN,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
}
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_NAMES: Final = {logical: name for name, logical in _LOGICAL.items()} | {"timestamp-micros": TIMESTAMP}


def to_avro(schema: Schema) -> Any:
    """Optional ones are unions with null. Raises DataError."""
    made = _made(schema)
    return ["null", made] if schema.optional else made


def _made(schema: Schema) -> Any:
    match schema.kind:
        case Kind.STRUCT:
            return {
                "type": "record",
                "name": schema.name or _DEFAULT_NAME,
                "fields": [_field(each) for each in schema.fields],
            }
        case Kind.ARRAY:
            assert schema.values is not None
            return {"type": "array", "items": to_avro(schema.values)}
        case Kind.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            if schema.keys.kind is Kind.STRING and not schema.keys.optional:
                return {"type": "map", "values": to_avro(schema.values)}
            pair = [
                {"name": "key", "type": to_avro(schema.keys)},
                {"name": "value", "type": to_avro(schema.values)},
            ]
            return {"type": "array", "items": {"type": "record", "name": _ENTRY, "fields": pair}}
    plain = _TYPES[schema.kind]
    if schema.name == DECIMAL:
        logical = {"logicalType": "decimal", "precision": _PRECISION, "scale": schema.scale}
        return {"type": plain, **logical, "connect.name": DECIMAL}
    if schema.name in _LOGICAL:
        return {"type": plain, "logicalType": _LOGICAL[schema.name], "connect.name": schema.name}
    more = {"connect.type": schema.kind.value} if schema.kind in {Kind.INT8, Kind.INT16} else {}
    if schema.name is not None:
        more["connect.name"] = schema.name
    return {"type": plain, **more} if more else plain


def _field(field: Field) -> dict[str, Any]:
    made = {"name": field.name, "type": to_avro(field.schema)}
    if field.schema.doc is not None:
        made["doc"] = field.schema.doc
    if field.schema.optional and field.schema.default is None:
        made["default"] = None
    elif isinstance(field.schema.default, str | int | float | bool) and not field.schema.optional:
        made["default"] = field.schema.default
    return made


def to_datum(schema: Schema, value: Any) -> Any:
    """The value as fastavro writes it. Raises DataError for one that its schema does not allow."""
    if value is None:
        if schema.default is not None:
            value = schema.default
        elif schema.optional:
            return None
        else:
            raise DataError("Invalid value: null used for required field")
    match schema.kind:
        case Kind.STRUCT:
            if not isinstance(value, Struct):
                raise DataError(f"{value!r} is not a Struct, which its schema says it is")
            return {each.name: to_datum(each.schema, value.get(each.name)) for each in schema.fields}
        case Kind.ARRAY:
            assert schema.values is not None
            return [to_datum(schema.values, each) for each in value]
        case Kind.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            if schema.keys.kind is Kind.STRING and not schema.keys.optional:
                return {name: to_datum(schema.values, each) for name, each in value.items()}
            return [
                {"key": to_datum(schema.keys, name), "value": to_datum(schema.values, each)}
                for name, each in value.items()
            ]
        case _:
            return value


def from_avro(avro: Any) -> Schema:
    """Raises DataError for what Connect has no schema for: types that contain themselves."""
    return _Reader().read(avro)


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, Schema | None] = {}
        """None while it is being read."""
        self._namespace = ""
        """Of the record around; names without one of their own are in it."""

    def read(self, avro: Any) -> Schema:
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            if avro in _KINDS:
                return Schema(_KINDS[avro])
            found = self._named.get(avro) or self._named.get(_full_name({"name": avro}, self._namespace))
            if found is None:
                raise DataError(
                    f"Avro's {avro} cannot be had in Connect: it contains itself, or is not known"
                )
            return found
        return self._defined(avro)

    def _union(self, branches: list[Any]) -> Schema:
        rest = [each for each in branches if each != "null"]
        has_null = len(rest) < len(branches)
        if len(rest) == 1:
            return self.read(rest[0]).but(optional=has_null)
        fields = tuple(Field(branch_name(each), self.read(each).but(optional=True)) for each in rest)
        return Schema(Kind.STRUCT, has_null, name=_UNION, fields=fields)

    def _defined(self, avro: Mapping[str, Any]) -> Schema:
        kind = avro["type"]
        match kind:
            case "record":
                name = _full_name(avro, self._namespace)
                self._named[name] = None
                around, self._namespace = self._namespace, name.rpartition(".")[0]
                fields = tuple(self._field(each) for each in avro["fields"])
                self._namespace = around
                shown = None if name == _DEFAULT_NAME else avro.get("connect.name", name)
                self._named[name] = schema = Schema(
                    Kind.STRUCT, name=shown, doc=avro.get("doc"), fields=fields
                )
                return schema
            case "enum":
                name = _full_name(avro, self._namespace)
                self._named[name] = schema = Schema(Kind.STRING, name=name)
                return schema
            case "fixed":
                name = _full_name(avro, self._namespace)
                self._named[name] = schema = Schema(Kind.BYTES, name=name)
                return schema
            case "array":
                return self._array(avro["items"])
            case "map":
                return Schema(Kind.MAP, keys=Schema(Kind.STRING), values=self.read(avro["values"]))
            case str() if kind in _KINDS:
                return _logical(avro, _KINDS[kind])
            case _:
                return self.read(kind)

    def _array(self, items: Any) -> Schema:
        read = self.read(items)
        if read.name == _ENTRY:
            key, value = read.field("key"), read.field("value")
            assert key is not None
            assert value is not None
            return Schema(Kind.MAP, keys=key.schema, values=value.schema)
        return Schema(Kind.ARRAY, values=read)

    def _field(self, avro: Mapping[str, Any]) -> Field:
        schema = self.read(avro["type"])
        default = avro.get("default")
        if isinstance(default, str | int | float | bool) and schema.kind not in {Kind.STRUCT, Kind.BYTES}:
            schema = schema.but(default=default)
        return Field(avro["name"], schema.but(doc=avro["doc"]) if "doc" in avro else schema)


def _logical(avro: Mapping[str, Any], kind: Kind) -> Schema:
    logical = avro.get("logicalType")
    if logical == "decimal":
        return decimal_of(int(avro.get("scale", 0)))
    if logical in _NAMES:
        return Schema(kind, name=_NAMES[logical], version=1)
    narrow = {"int8": Kind.INT8, "int16": Kind.INT16}.get(avro.get("connect.type", ""), kind)
    return Schema(narrow, name=avro.get("connect.name"))


def _full_name(avro: Mapping[str, Any], around: str = "") -> str:
    name, namespace = str(avro["name"]), avro.get("namespace", around)
    return name if "." in name or not namespace else f"{namespace}.{name}"


def branch_name(avro: Any) -> str:
    """Of a field that stands for one of several types."""
    if isinstance(avro, str):
        return avro.rpartition(".")[2]
    if avro["type"] in {"record", "enum", "fixed"}:
        return _full_name(avro).rpartition(".")[2]
    return str(avro["type"])


def from_datum(schema: Schema, datum: Any) -> Any:
    """The value that fastavro has read."""
    if datum is None:
        return None
    match schema.kind:
        case Kind.STRUCT if schema.name == _UNION:
            # fastavro gives branches that are named as (name, value), and others as they are.
            names, value = ([datum[0]], datum[1]) if isinstance(datum, tuple) else (_branches(datum), datum)
            known = {str(name).rpartition(".")[2] for name in names}
            for field in schema.fields:
                if field.name in known:
                    return Struct(schema, {field.name: from_datum(field.schema, value)})
            raise DataError(f"{datum!r} is of none of the types of its union")
        case Kind.STRUCT:
            return Struct(
                schema, {each.name: from_datum(each.schema, datum.get(each.name)) for each in schema.fields}
            )
        case Kind.ARRAY:
            assert schema.values is not None
            return [from_datum(schema.values, each) for each in datum]
        case Kind.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            if isinstance(datum, list):
                return {
                    from_datum(schema.keys, each["key"]): from_datum(schema.values, each["value"])
                    for each in datum
                }
            return {name: from_datum(schema.values, each) for name, each in datum.items()}
        case _:
            return datum


def _branches(datum: Any) -> tuple[str, ...]:
    """Names of the types that it may be of."""
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",),
        int: ("int", "long"),
        float: ("float", "double"),
        str: ("string",),
        bytes: ("bytes",),
        list: ("array",),
    }
    return kinds.get(type(datum), ("map",))
