"""Schemas of Connect as Protobuf messages and back, and values as messages.

As in Confluent's ProtobufConverter a struct is a message, an array a repeated field, a map a map; whole
numbers of 8 and 16 bits are int32, and a timestamp is Google's. Of several fields that exclude each other
each is optional.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Field,
    Kind,
    Schema,
    Struct,
)
from ottla.connect.errors import DataError

_NAME: Final = "ConnectDefault1"
_STAMP: Final = "google.protobuf.Timestamp"
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_Proto = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    Kind.INT8: _Proto.TYPE_INT32,
    Kind.INT16: _Proto.TYPE_INT32,
    Kind.INT32: _Proto.TYPE_INT32,
    Kind.INT64: _Proto.TYPE_INT64,
    Kind.FLOAT32: _Proto.TYPE_FLOAT,
    Kind.FLOAT64: _Proto.TYPE_DOUBLE,
    Kind.BOOLEAN: _Proto.TYPE_BOOL,
    Kind.STRING: _Proto.TYPE_STRING,
    Kind.BYTES: _Proto.TYPE_BYTES,
}
_SCHEMAS: Final = {
    FieldDescriptor.CPPTYPE_INT32: INT32,
    FieldDescriptor.CPPTYPE_UINT32: INT64,
    FieldDescriptor.CPPTYPE_INT64: INT64,
    FieldDescriptor.CPPTYPE_UINT64: INT64,
    FieldDescriptor.CPPTYPE_FLOAT: Schema(Kind.FLOAT32),
    FieldDescriptor.CPPTYPE_DOUBLE: FLOAT64,
    FieldDescriptor.CPPTYPE_BOOL: BOOLEAN,
    FieldDescriptor.CPPTYPE_ENUM: STRING,
}


def to_file(schema: Schema) -> descriptor_pb2.FileDescriptorProto:
    """A file whose first message is the schema. Raises DataError."""
    if schema.kind is not Kind.STRUCT:
        raise DataError(f"Protobuf needs fields, and the value is {schema.kind.name}: use HoistField")
    package, _, name = (schema.name or _NAME).rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name="default.proto", package=package, syntax="proto3")
    _fill(file.message_type.add(), name, schema, file, f"{'.' + package if package else ''}.{name}")
    return file


def _fill(message: Any, name: str, schema: Schema, file: Any, path: str) -> None:
    message.name = name
    presences = []
    for number, each in enumerate(schema.fields, 1):
        if _WORD.fullmatch(each.name) is None:
            raise DataError(
                f"{each.name} cannot be the name of a field in Protobuf: rename it with ReplaceField"
            )
        field = message.field.add(name=each.name, number=number, label=_Proto.LABEL_OPTIONAL)
        if each.schema.kind is Kind.ARRAY and each.schema.values is not None:
            field.label = _Proto.LABEL_REPEATED
            _set_type(field, each.schema.values, message, file, path)
        elif each.schema.kind is Kind.MAP:
            _set_map(field, each.schema, message, file, path)
        else:
            _set_type(field, each.schema, message, file, path)
            if each.schema.optional and field.type != _Proto.TYPE_MESSAGE:
                field.proto3_optional = True
                presences.append(field)
    for index, field in enumerate(presences):
        field.oneof_index = index
        message.oneof_decl.add(name=f"_{field.name}")


def _set_type(field: Any, schema: Schema, message: Any, file: Any, path: str) -> None:
    if schema.kind is Kind.STRUCT:
        name = (schema.name or f"{field.name}_type").rpartition(".")[2]
        if all(nested.name != name for nested in message.nested_type):
            _fill(message.nested_type.add(), name, schema, file, f"{path}.{name}")
        field.type, field.type_name = _Proto.TYPE_MESSAGE, f"{path}.{name}"
    elif schema.name == TIMESTAMP:
        if timestamp_pb2.DESCRIPTOR.name not in file.dependency:
            file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
        field.type, field.type_name = _Proto.TYPE_MESSAGE, f".{_STAMP}"
    elif schema.kind in _TYPES and schema.name is None:
        field.type = _TYPES[schema.kind]
    else:
        raise DataError(
            f"{field.name}: {schema.name or schema.kind.name} has no form in Protobuf here: cast it"
        )


def _set_map(field: Any, schema: Schema, message: Any, file: Any, path: str) -> None:
    assert schema.keys is not None
    assert schema.values is not None
    name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, kind) in enumerate((("key", schema.keys), ("value", schema.values)), 1):
        _set_type(
            entry.field.add(name=part, number=number, label=_Proto.LABEL_OPTIONAL), kind, message, file, path
        )
    field.label, field.type, field.type_name = _Proto.LABEL_REPEATED, _Proto.TYPE_MESSAGE, f"{path}.{name}"


def message_class(file: descriptor_pb2.FileDescriptorProto, indexes: list[int]) -> type[Message]:
    """The message that the numbers lead to, each among those in the one before."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in file.dependency:
            if name != timestamp_pb2.DESCRIPTOR.name:
                raise DataError(f"the schema imports {name}: only Google's timestamp can be imported here")
            pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(file.SerializeToString())
        found = pool.FindFileByName(file.name)
        message: Descriptor = list(found.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            message = message.nested_types[index]
    except (TypeError, IndexError) as error:
        raise DataError(f"the schema cannot be used: {error}") from error
    made: type[Message] = message_factory.GetMessageClass(message)
    return made


def to_schema(message: Descriptor, around: tuple[str, ...] = ()) -> Schema:
    """Raises DataError for a message that contains itself."""
    if message.full_name in around:
        raise DataError(f"{message.full_name} contains itself, for which Connect has no schema")
    inside = (*around, message.full_name)
    fields = tuple(Field(each.name, _field_schema(each, inside)) for each in message.fields)
    return Schema(Kind.STRUCT, name=message.full_name, fields=fields)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _field_schema(field: FieldDescriptor, around: tuple[str, ...]) -> Schema:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        keys, values = (_one_schema(entry[part], around) for part in ("key", "value"))
        return Schema(Kind.MAP, keys=keys, values=values)
    one = _one_schema(field, around)
    if _is_repeated(field):
        return Schema(Kind.ARRAY, values=one)
    return one.but(optional=True) if field.has_presence else one


def _one_schema(field: FieldDescriptor, around: tuple[str, ...]) -> Schema:
    if field.message_type is not None:
        is_stamp = field.message_type.full_name == _STAMP
        return TIMESTAMP_SCHEMA if is_stamp else to_schema(field.message_type, around)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return BYTES if field.type == FieldDescriptor.TYPE_BYTES else STRING
    return _SCHEMAS[field.cpp_type]


def fill_message(message: Any, schema: Schema, value: Any) -> None:
    """Raises DataError, TypeError or ValueError for what does not suit the schema."""
    if not isinstance(value, Struct):
        raise DataError(f"{value!r} is not a Struct, which its schema says it is")
    for each in schema.fields:
        found, items = value.get(each.name), each.schema.values
        if found is None:
            if not each.schema.optional and items is None:
                raise DataError(f"Invalid value: null used for required field {each.name}")
            continue
        inside = getattr(message, each.name)
        if items is None:
            _put(each.schema, found, partial(_present, inside), partial(setattr, message, each.name))
        elif each.schema.kind is Kind.MAP:
            for key, one in found.items():
                _put(items, one, partial(inside.__getitem__, key), partial(inside.__setitem__, key))
        else:
            for one in found:
                _put(items, one, getattr(inside, "add", None), inside.append)


def _present(message: Any) -> Any:
    message.SetInParent()
    return message


def _put(schema: Schema, value: Any, message: Any, put: Callable[[Any], None]) -> None:
    """`message` gives the one that stands for a value that is a message."""
    if schema.kind is Kind.STRUCT:
        fill_message(message(), schema, value)
    elif isinstance(value, datetime):
        message().FromDatetime(value)
    else:
        put(value)


def from_message(message: Any, schema: Schema) -> Struct:
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        declared = schema.field(field.name)
        assert declared is not None
        kind, found = declared.schema, getattr(message, field.name)
        if _is_map(field):
            value = field.message_type.fields_by_name["value"]
            values[field.name] = {key: _read(value, found[key], kind.values) for key in found}
        elif _is_repeated(field):
            values[field.name] = [_read(field, each, kind.values) for each in found]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = _read(field, found, kind)
    return Struct(schema, values)


def _read(field: FieldDescriptor, value: Any, schema: Schema | None) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _STAMP:
            return value.ToDatetime(tzinfo=UTC)
        assert schema is not None
        return from_message(value, schema)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
