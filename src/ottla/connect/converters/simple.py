"""Converters of single values: text, raw bytes, booleans and numbers, in the formats of Kafka's
serializers."""

from __future__ import annotations

import codecs
import struct
from typing import Any, ClassVar, Final

from ottla.connect.columns import Column, Flat
from ottla.connect.converters.common import CONVERTER_TYPE
from ottla.connect.data import BOOLEAN, BYTES, NULL, STRING, Kind, Schema, SchemaAndValue
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugin import Config, Converter, HeaderConverter
from ottla.connect.records import Header
from ottla.connect.settings.definition import Importance, Setting, Settings, Type
from ottla.connect.text import to_text

_OPTIONAL_STRING: Final = STRING.but(optional=True)
_NO_STRING: Final = SchemaAndValue(_OPTIONAL_STRING, None)
_OPTIONAL_BYTES: Final = BYTES.but(optional=True)


class _Both(Converter, HeaderConverter):
    """Headers as values are."""

    settings: ClassVar[Settings] = Settings(CONVERTER_TYPE)

    def header_to_bytes(self, topic: str, header: Header) -> bytes | None:
        return self.to_bytes(topic, header.schema, header.value)

    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> Header:
        return Header(key, *self.from_bytes(topic, data))


def _encoding(name: str, value: Any) -> None:
    try:
        codecs.lookup(value or "utf-8")
    except LookupError:
        raise SettingError.of(name, value, "there is no such character set") from None


class StringConverter(_Both):
    settings: ClassVar[Settings] = Settings(
        CONVERTER_TYPE,
        Setting(
            "converter.encoding",
            Type.STRING,
            "UTF-8",
            Importance.HIGH,
            "The character set of the text.",
            _encoding,
            width="MEDIUM",
            display="Encoding",
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._encoding = self.config["converter.encoding"]
        self._is_utf8 = codecs.lookup(self._encoding).name == "utf-8"

    def columns_to_bytes(self, topic: str, column: Column) -> Any:
        is_text = isinstance(column, Flat) and column.schema.kind is Kind.STRING and self._is_utf8
        return column.array.view("binary") if isinstance(column, Flat) and is_text else None

    def columns_from_bytes(self, topic: str, array: Any) -> Column | None:
        return Flat(_OPTIONAL_STRING, array.cast("string")) if self._is_utf8 else None

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else to_text(value).encode(self._encoding)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return _NO_STRING
        try:
            return SchemaAndValue(_OPTIONAL_STRING, data.decode(self._encoding))
        except UnicodeDecodeError as error:
            raise DataError(f"the value is not text in {self._encoding}: {error}") from error


class ByteArrayConverter(_Both):
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.kind is not Kind.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.kind.name}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            )
        return None if value is None else bytes(value)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(_OPTIONAL_BYTES, data)

    def columns_to_bytes(self, topic: str, column: Column) -> Any:
        return column.array if isinstance(column, Flat) and column.schema.kind is Kind.BYTES else None

    def columns_from_bytes(self, topic: str, array: Any) -> Column | None:
        return Flat(_OPTIONAL_BYTES, array)


class BooleanConverter(_Both):
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is not None and not isinstance(value, bool):
            raise DataError(f"Failed to serialize to a boolean (was {type(value).__name__})")
        return None if value is None else bytes([value])

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NULL
        if data not in (b"\0", b"\1"):
            raise DataError(f"Failed to deserialize a boolean: {data!r}")
        return SchemaAndValue(BOOLEAN.but(optional=True), data == b"\1")


class _Number(_Both):
    """Big-endian."""

    layout: ClassVar[str]
    kind: ClassVar[Kind]

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        is_number = isinstance(value, int if self.layout in ">h>i>q" else int | float)
        try:
            if not is_number or isinstance(value, bool):
                raise DataError(f"{value!r} is no number")
            return struct.pack(self.layout, value)
        except (struct.error, DataError) as error:
            raise DataError(f"Failed to serialize to {self.kind.value}: {error}") from None

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        size = struct.calcsize(self.layout)
        if data is not None and len(data) != size:
            raise DataError(
                f"Failed to deserialize {self.kind.value}: it has {len(data)} bytes instead of {size}"
            )
        value = None if data is None else struct.unpack(self.layout, data)[0]
        return SchemaAndValue(Schema(self.kind, optional=True), value)


class ShortConverter(_Number):
    layout, kind = ">h", Kind.INT16


class IntegerConverter(_Number):
    layout, kind = ">i", Kind.INT32


class LongConverter(_Number):
    layout, kind = ">q", Kind.INT64


class FloatConverter(_Number):
    layout, kind = ">f", Kind.FLOAT32


class DoubleConverter(_Number):
    layout, kind = ">d", Kind.FLOAT64
