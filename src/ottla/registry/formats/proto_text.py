"""A file descriptor as `.proto` text: the same text for the same descriptor, and protoc reads it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

_FIELD_NUMBER_MAX = 1 << 29
_ENUM_NUMBER_MAX = (1 << 31) - 1
SCALARS = {
    Proto.TYPE_DOUBLE: "double",
    Proto.TYPE_FLOAT: "float",
    Proto.TYPE_INT64: "int64",
    Proto.TYPE_UINT64: "uint64",
    Proto.TYPE_INT32: "int32",
    Proto.TYPE_FIXED64: "fixed64",
    Proto.TYPE_FIXED32: "fixed32",
    Proto.TYPE_BOOL: "bool",
    Proto.TYPE_STRING: "string",
    Proto.TYPE_BYTES: "bytes",
    Proto.TYPE_UINT32: "uint32",
    Proto.TYPE_SFIXED32: "sfixed32",
    Proto.TYPE_SFIXED64: "sfixed64",
    Proto.TYPE_SINT32: "sint32",
    Proto.TYPE_SINT64: "sint64",
}
_LABELS = {Proto.LABEL_OPTIONAL: "optional ", Proto.LABEL_REQUIRED: "required "}


def proto_text(file: FileDescriptorProto, imports: Iterable[FileDescriptorProto]) -> str:
    lines = _Text(file, list(imports)).lines()
    return "\n".join(lines) + "\n"


def default_json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class _Text:
    def __init__(self, file: FileDescriptorProto, imports: list[FileDescriptorProto]) -> None:
        self._file = file
        self._names = set(_symbols([file, *imports]))
        self._pool = _pool([*imports, file])

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{_edition(file)}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        for number, name in enumerate(file.dependency):
            kind = "public " if number in file.public_dependency else ""
            yield f'import {"weak " if number in file.weak_dependency else kind}"{name}";'
        options = self._options(file.options, "FileOptions")
        if options:
            yield ""
        yield from (f"option {option};" for option in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message, file.package)
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum)
        for extended in file.extension:
            yield ""
            yield from self._extension(extended, file.package)
        for service in file.service:
            yield ""
            yield from self._service(service, file.package)

    def _message(self, message: Any, scope: str) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._message_body(message, f"{scope}.{message.name}".lstrip(".")))
        yield "}"

    def _message_body(self, message: Any, scope: str) -> Iterator[str]:
        yield from (f"option {option};" for option in self._options(message.options, "MessageOptions"))
        yield from _reserved(message, 1, _FIELD_NUMBER_MAX - 1)
        for extensible in message.extension_range:
            yield f"extensions {_range(extensible.start, extensible.end - 1, _FIELD_NUMBER_MAX - 1)};"
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {field.type_name.rpartition(".")[2] for field in message.field if _is_group(field)}
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, scope, maps, message)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                yield from self._oneof(message, field.oneof_index, scope, maps)
        for nested in message.nested_type:
            if nested.name not in maps and nested.name not in groups:
                yield from self._message(nested, scope)
        for enum in message.enum_type:
            yield from self._enum(enum)
        for extended in message.extension:
            yield from self._extension(extended, scope)

    def _oneof(self, message: Any, index: int, scope: str, maps: dict[str, Any]) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{"
        for option in self._options(oneof.options, "OneofOptions"):
            yield f"  option {option};"
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from _indented(self._field(field, scope, maps, message, label=""))
        yield "}"

    def _field(
        self, field: Any, scope: str, maps: dict[str, Any], parent: Any, label: str | None = None
    ) -> Iterator[str]:
        if label is None:
            label = self._label(field)
        options = self._field_options(field)
        shown = _bracketed(options)
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == Proto.TYPE_MESSAGE else None
        if _is_group(field):
            name = field.type_name.rpartition(".")[2]
            group = next(nested for nested in parent.nested_type if nested.name == name)
            yield f"{label}group {name} = {field.number}{shown} {{"
            yield from _indented(self._message_body(group, f"{scope}.{name}"))
            yield "}"
        elif entry is not None:
            key, value = (self._type(each, scope) for each in entry.field)
            yield f"map<{key}, {value}> {field.name} = {field.number}{shown};"
        else:
            yield f"{label}{self._type(field, scope)} {field.name} = {field.number}{shown};"

    def _label(self, field: Any) -> str:
        if field.label == Proto.LABEL_REPEATED:
            return "repeated "
        if self._file.syntax in {"proto3", "editions"}:
            return "optional " if field.proto3_optional else ""
        return _LABELS[field.label]

    def _field_options(self, field: Any) -> list[str]:
        options = self._options(field.options, "FieldOptions")
        if field.json_name and field.json_name != default_json_name(field.name):
            options.insert(0, f"json_name = {_quoted(field.json_name)}")
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == Proto.TYPE_STRING:
                default = _quoted(default)
            elif field.type == Proto.TYPE_BYTES:
                default = f'"{default}"'
            options.insert(0, f"default = {default}")
        return options

    def _extension(self, field: Any, scope: str) -> Iterator[str]:
        yield f"extend {self._relative(field.extendee, scope)} {{"
        yield from _indented(self._field(field, scope, {}, None))
        yield "}"

    def _enum(self, enum: Any) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        for option in self._options(enum.options, "EnumOptions"):
            yield f"  option {option};"
        yield from _indented(_reserved(enum, 0, _ENUM_NUMBER_MAX))
        for value in enum.value:
            options = self._options(value.options, "EnumValueOptions")
            yield f"  {value.name} = {value.number}{_bracketed(options)};"
        yield "}"

    def _service(self, service: Any, scope: str) -> Iterator[str]:
        yield f"service {service.name} {{"
        for option in self._options(service.options, "ServiceOptions"):
            yield f"  option {option};"
        for method in service.method:
            taken = ("stream " if method.client_streaming else "") + self._relative(method.input_type, scope)
            given = ("stream " if method.server_streaming else "") + self._relative(method.output_type, scope)
            options = self._options(method.options, "MethodOptions")
            head = f"  rpc {method.name} ({taken}) returns ({given})"
            yield head + (" {" if options else ";")
            yield from (f"    option {option};" for option in options)
            if options:
                yield "  }"
        yield "}"

    def _type(self, field: Any, scope: str) -> str:
        return SCALARS.get(field.type) or self._relative(field.type_name, scope)

    def _relative(self, full: str, scope: str) -> str:
        """As short as the package allows, unless something nearer has that name."""
        target = full.removeprefix(".")
        package = self._file.package
        short = target.removeprefix(f"{package}.") if package else target
        head, _, rest = short.partition(".")
        around = scope
        while True:
            candidate = f"{around}.{head}".lstrip(".")
            if candidate in self._names:
                return short if (f"{candidate}.{rest}" if rest else candidate) == target else f".{target}"
            if not around:
                return f".{target}"
            around = around.rpartition(".")[0]

    def _options(self, options: Any, kind: str) -> list[str]:
        """Read again where custom options are known: to the plain class they are bytes without a name."""
        try:
            found = message_factory.GetMessageClass(
                self._pool.FindMessageTypeByName(f"google.protobuf.{kind}")
            ).FromString(options.SerializeToString())
        except (KeyError, DecodeError):
            found = options
        shown: list[str] = []
        for field, value in found.ListFields():
            if field.name == "map_entry":
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            values = value if field.is_repeated else [value]
            shown += [f"{name} = {_value(field, each)}" for each in values]
        return shown


def _symbols(files: Iterable[FileDescriptorProto]) -> Iterator[str]:
    def of_message(message: Any, scope: str) -> Iterator[str]:
        name = f"{scope}.{message.name}".lstrip(".")
        yield name
        for nested in message.nested_type:
            yield from of_message(nested, name)
        yield from (f"{name}.{enum.name}" for enum in message.enum_type)

    for file in files:
        parts = file.package.split(".") if file.package else []
        yield from (".".join(parts[: count + 1]) for count in range(len(parts)))
        for message in file.message_type:
            yield from of_message(message, file.package)
        yield from (f"{file.package}.{enum.name}".lstrip(".") for enum in file.enum_type)


def _pool(files: Iterable[FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _value(field: FieldDescriptor, value: Any) -> str:
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return _quoted(value.decode("latin-1"))
    return str(value)


def _reserved(message: Any, end_is_exclusive: int, number_max: int) -> Iterator[str]:
    ranges = [_range(each.start, each.end - end_is_exclusive, number_max) for each in message.reserved_range]
    if ranges:
        yield f"reserved {', '.join(ranges)};"
    if message.reserved_name:
        yield f"reserved {', '.join(_quoted(name) for name in message.reserved_name)};"


def _range(start: int, end: int, number_max: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= number_max else end}"


def _is_group(field: Any) -> bool:
    return bool(field.type == Proto.TYPE_GROUP)


def _edition(file: FileDescriptorProto) -> str:
    from google.protobuf.descriptor_pb2 import Edition

    return str(Edition.Name(file.edition)).removeprefix("EDITION_")


def _quoted(text: str) -> str:
    escaped = "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else _escaped(char) for char in text
    )
    return f'"{escaped}"'


def _escaped(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode())


def _bracketed(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
