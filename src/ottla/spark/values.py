"""Values with a schema: JSON and Avro in topics as columns of Spark, decoded while they are read.

The reader is told the columns by a DDL string (JSON) or an Avro schema, or takes the schema of a topic's
subject from a schema registry; then each value begins with a byte and the id of the schema it was written by.
"""

from __future__ import annotations

import json
import struct
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

from ottla.client.schema_registry import RegistryUnreachable, is_about_schemas
from ottla.spark.sink_options import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("binary", "json", "avro")
_FRAME = struct.Struct(">bI")
_REGISTRY_TIMEOUT_S = 10.0


class UnfitValue(Exception):
    """A value that does not fit the schema; the text names its place and the remedy."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How values are read. A null, or one that does not fit where that is allowed, is null."""

    kind: str = "binary"
    schema: str = ""
    registry_url: str = ""
    is_permissive: bool = False

    @property
    def is_binary(self) -> bool:
        return self.kind == "binary"

    def spark_type(self) -> str:
        """Of the column, as DDL."""
        match self.kind:
            case "json":
                return f"struct<{self.schema}>"
            case "avro":
                return avro_type(json.loads(self.schema))
            case _:
                return "binary"

    def decoder(self) -> Callable[[bytes], Any]:
        if self.kind == "json":
            return json.loads
        return _avro_decoder(self.schema, self.registry_url)


BINARY = ValueFormat()


def value_format(given: Mapping[str, str], topics: tuple[str, ...]) -> ValueFormat:
    """From options. Raises InvalidOption."""
    kind = given.get("valueFormat", "binary").lower()
    schema, registry = given.get("valueSchema", ""), given.get("schemaRegistryUrl", "")
    if kind not in FORMATS:
        raise InvalidOption(f"valueFormat is {kind!r}; it is one of {', '.join(FORMATS)}.")
    if kind == "binary" and (schema or registry):
        raise InvalidOption("valueSchema and schemaRegistryUrl need a valueFormat: json or avro.")
    if kind == "json" and (not schema or registry):
        raise InvalidOption("valueFormat json needs a valueSchema, such as 'id BIGINT, name STRING'.")
    if kind == "avro" and not schema:
        if not registry or len(topics) != 1:
            raise InvalidOption(
                "valueFormat avro needs a valueSchema, in Avro's JSON, or a schemaRegistryUrl and one topic."
            )
        subject = urllib.parse.quote(f"{topics[0]}-value", safe="")
        try:
            schema = _asked(registry, f"/subjects/{subject}/versions/latest")["schema"]
        except RegistryUnreachable as error:
            raise InvalidOption(str(error)) from None
    mode = given.get("valueMode", "FAILFAST").upper()
    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise InvalidOption(f"valueMode is {mode!r}; it is FAILFAST or PERMISSIVE.")
    return ValueFormat(kind, schema, registry, mode == "PERMISSIVE")


def decoded(batch: pa.RecordBatch, how: ValueFormat, arrow_type: pa.DataType) -> pa.RecordBatch:
    """The batch with its values in columns of their own."""
    import pyarrow as pa

    decode = how.decoder()
    index = batch.schema.get_field_index("value")
    raw = batch.column(index).to_pylist()
    try:
        values = pa.array([None if each is None else decode(each) for each in raw], arrow_type)
    except Exception:
        # One of them; the others are fine.
        values = pa.array(
            [_one(batch, at, each, decode, how, arrow_type) for at, each in enumerate(raw)], arrow_type
        )
    return batch.set_column(index, pa.field("value", arrow_type), values)


def _one(
    batch: pa.RecordBatch,
    at: int,
    value: bytes | None,
    decode: Callable[[bytes], Any],
    how: ValueFormat,
    arrow_type: pa.DataType,
) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    try:
        found = decode(value)
        pa.array([found], arrow_type)
        return found
    except RegistryUnreachable:
        raise
    except Exception as error:
        if how.is_permissive:
            return None
        topic, partition, offset = (
            batch.column(name)[at].as_py() for name in ("topic", "partition", "offset")
        )
        raise UnfitValue(
            f"The value at offset {offset} of {topic}-{partition} does not fit the schema ({how.kind}): "
            f"{type(error).__name__}: {error}. Set valueMode=PERMISSIVE to read such values as null."
        ) from error


def _avro_decoder(schema: str, registry_url: str) -> Callable[[bytes], Any]:
    try:
        from fastavro import parse_schema, schemaless_reader
    except ModuleNotFoundError:
        raise InvalidOption(
            "valueFormat avro needs the package fastavro: pip install 'ottla[avro]'"
        ) from None
    reader: Any = parse_schema(json.loads(schema))
    if not registry_url:
        return lambda data: schemaless_reader(BytesIO(data), reader, None)

    @cache
    def written_by(schema_id: int) -> Any:
        return parse_schema(json.loads(_asked(registry_url, f"/schemas/ids/{schema_id}")["schema"]))

    def decode(data: bytes) -> Any:
        magic, schema_id = _FRAME.unpack_from(data)
        if magic != 0:
            raise ValueError("it does not begin with the id of a schema")
        return schemaless_reader(BytesIO(data[_FRAME.size :]), written_by(schema_id), reader)

    return decode


def _asked(registries: str, path: str) -> dict[str, Any]:
    """Of the first that answers, of addresses separated by commas."""
    unreachable = RegistryUnreachable("schemaRegistryUrl names no registry.")
    for registry in registries.split(","):
        url = f"{registry.strip().rstrip('/')}{path}"
        if not url.startswith(("http://", "https://")):
            raise InvalidOption(f"schemaRegistryUrl: {url} is no HTTP address.")
        try:
            with urllib.request.urlopen(url, timeout=_REGISTRY_TIMEOUT_S) as answer:  # noqa: S310 - HTTP, checked above
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError) as error:
            text = f"The schema registry does not answer {url}: {error}"
            if isinstance(error, HTTPError) and is_about_schemas(error.code):
                raise InvalidOption(text) from None
            unreachable = RegistryUnreachable(text)
    raise unreachable


_AVRO = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_AVRO_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "uuid": "string",
}


def avro_type(schema: Any) -> str:
    """Spark's type for an Avro schema. Raises InvalidOption for what has none."""
    match schema:
        case [*branches] if len([each for each in branches if each != "null"]) == 1:
            return avro_type(next(each for each in branches if each != "null"))
        case {"type": "record", "fields": fields}:
            inner = ", ".join(f"`{field['name']}`: {avro_type(field['type'])}" for field in fields)
            return f"struct<{inner}>"
        case {"type": "array", "items": items}:
            return f"array<{avro_type(items)}>"
        case {"type": "map", "values": values}:
            return f"map<string, {avro_type(values)}>"
        case {"logicalType": "decimal", "precision": precision, **rest}:
            return f"decimal({precision}, {rest.get('scale', 0)})"
        case {"logicalType": str(logical)} if logical in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[logical]
        case {"type": inner}:
            return avro_type(inner)
        case str(name) if name in _AVRO:
            return _AVRO[name]
    raise InvalidOption(f"The Avro type {json.dumps(schema)} has none in Spark: read the topic as binary.")
