"""Whether data of one Protobuf schema can be read with another: what may change about a message.

Fields are known by their numbers, so names, order and enum constants may change; the kinds of values on the
wire may not, nor may fields that could be set together begin to exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto

from ottla.registry.formats.proto_text import SCALARS

if TYPE_CHECKING:
    from ottla.registry.formats.protobuf import ProtobufSchema

_NUMBER = "number"
# Values of one group are the same on the wire.
_WIRE_KINDS = {
    "int32": _NUMBER,
    "int64": _NUMBER,
    "uint32": _NUMBER,
    "uint64": _NUMBER,
    "bool": _NUMBER,
    "sint32": "signed",
    "sint64": "signed",
    "string": "text",
    "bytes": "text",
    "fixed32": "fixed32",
    "sfixed32": "fixed32",
    "fixed64": "fixed64",
    "sfixed64": "fixed64",
    "float": "float",
    "double": "double",
}


def unreadable(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    return list(_Comparison(_Types(reader), _Types(writer)).compare())


class _Types:
    """Every message and enum of a schema and of what it imports, by full name, each with its package."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.file = schema.file
        self.messages: dict[str, tuple[Any, str]] = {}
        for file in (*schema.imports, schema.file):
            self._add(file.message_type, file.package, file.package)

    def _add(self, messages: Iterable[Any], scope: str, package: str) -> None:
        for message in messages:
            name = f"{scope}.{message.name}".lstrip(".")
            self.messages[name] = (message, package)
            self._add(message.nested_type, name, package)

    def label(self, field: Any) -> int | None:
        """None where nothing is written before the type."""
        is_plain = self.file.syntax in {"proto3", "editions"} and not field.proto3_optional
        return None if is_plain and field.label == Proto.LABEL_OPTIONAL else int(field.label)


class _Comparison:
    def __init__(self, new: _Types, old: _Types) -> None:
        self._new, self._old = new, old
        self._under_way: set[tuple[int, int]] = set()

    def compare(self) -> Iterator[str]:
        new, old = self._new.file, self._old.file
        if new.package != old.package:
            yield _told("PACKAGE_CHANGED", "#/", f"the package {old.package!r} became {new.package!r}")
        yield from self._types(new.message_type, old.message_type, "#/")

    def _types(self, new: Iterable[Any], old: Iterable[Any], path: str) -> Iterator[str]:
        by_name = {message.name: message for message in new}
        for message in old:
            at = f"{path}{message.name}"
            if message.options.map_entry:
                continue
            if message.name not in by_name:
                yield _told("MESSAGE_REMOVED", at, f"the message {message.name} is gone")
            else:
                yield from self._messages(by_name[message.name], message, at)

    def _messages(self, new: Any, old: Any, path: str) -> Iterator[str]:
        pair = (id(new), id(old))
        if pair in self._under_way:
            return
        self._under_way.add(pair)
        new_fields = {field.number: field for field in new.field}
        old_fields = {field.number: field for field in old.field}
        yield from self._exclusions(new, old, old_fields, path)
        gone = _gone_oneofs(new, old, new_fields)
        for number in sorted({*new_fields, *old_fields}):
            at = f"{path}/{number}"
            now, before = new_fields.get(number), old_fields.get(number)
            if now is None:
                assert before is not None
                oneof = _oneof(old, before)
                if oneof is not None and oneof not in gone:
                    text = f"the field {before.name} is gone from the oneof {oneof}"
                    yield _told("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{number}", text)
                elif before.label == Proto.LABEL_REQUIRED:
                    yield _told("REQUIRED_FIELD_REMOVED", at, f"the required field {before.name} is gone")
            elif before is None:
                if now.label == Proto.LABEL_REQUIRED:
                    yield _told("REQUIRED_FIELD_ADDED", at, f"the required field {now.name} is new")
            else:
                yield from self._fields(now, before, new, old, at)
        yield from self._types(new.nested_type, old.nested_type, f"{path}/")
        self._under_way.discard(pair)

    def _exclusions(self, new: Any, old: Any, old_fields: dict[int, Any], path: str) -> Iterator[str]:
        for index, declared in enumerate(new.oneof_decl):
            members = [field for field in new.field if _oneof_index(field) == index]
            before = [old_fields[field.number] for field in members if field.number in old_fields]
            alone = [field for field in before if _oneof_index(field) is None]
            groups = {_oneof_index(field) for field in before} - {None}
            if len(alone) + len(groups) > 1:
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                names = ", ".join(field.name for field in before)
                yield _told(kind, f"{path}/{declared.name}", f"of {names} only one can be set from now on")

    def _fields(self, new: Any, old: Any, new_in: Any, old_in: Any, path: str) -> Iterator[str]:
        new_entry, old_entry = _entry(new, new_in), _entry(old, old_in)
        if new_entry is not None and old_entry is not None:
            for now, before in zip(new_entry.field, old_entry.field, strict=True):
                yield from self._values(now, before, path)
        elif (new_entry is None) != (old_entry is None):
            yield _told("FIELD_KIND_CHANGED", path, f"{old.name} is a map in one of the schemas only")
        else:
            yield from self._values(new, old, path)
            labels = self._new.label(new), self._old.label(old)
            wire = _wire_kind(old)
            if None not in labels and labels[0] != labels[1] and wire not in {None, "text"}:
                text = f"the label of the number {old.name} changed"
                if _wire_kind(new) == wire:
                    yield _told("FIELD_NUMERIC_LABEL_CHANGED", path, text)

    def _values(self, new: Any, old: Any, path: str) -> Iterator[str]:
        now, before = _wire_kind(new), _wire_kind(old)
        if (now is None) != (before is None):
            yield _told("FIELD_KIND_CHANGED", path, f"{old.name} is a message in one of the schemas only")
        elif now is not None:
            if now != before:
                text = f"{old.name} was {_type_name(old)} and is {_type_name(new)}"
                yield _told("FIELD_SCALAR_KIND_CHANGED", path, text)
        else:
            yield from self._named(new, old, path)

    def _named(self, new: Any, old: Any, path: str) -> Iterator[str]:
        new_name, old_name = new.type_name.lstrip("."), old.type_name.lstrip(".")
        now, before = self._new.messages.get(new_name), self._old.messages.get(old_name)
        if now is None or before is None or _local(new_name, now[1]) != _local(old_name, before[1]):
            text = f"{old.name} was {old_name} and is {new_name}"
            yield _told("FIELD_NAMED_TYPE_CHANGED", path, text)
            return
        inside = list(self._messages(now[0], before[0], path))
        yield from inside
        if inside:
            yield _told("FIELD_NAMED_TYPE_CHANGED", path, f"{old_name}, the type of {old.name}, changed")


def _oneof_index(field: Any) -> int | None:
    """None for a field that stands alone, be it `optional` in proto3, which is a oneof of its own."""
    return None if field.proto3_optional or not field.HasField("oneof_index") else int(field.oneof_index)


def _oneof(message: Any, field: Any) -> str | None:
    index = _oneof_index(field)
    return None if index is None else str(message.oneof_decl[index].name)


def _gone_oneofs(new: Any, old: Any, new_fields: dict[int, Any]) -> set[str]:
    """Those without a name or a member left: deleting all of one is as harmless as deleting a field."""
    kept = {declared.name for declared in new.oneof_decl}
    gone = {declared.name for declared in old.oneof_decl} - kept
    surviving = {_oneof(old, field) for field in old.field if field.number in new_fields}
    return {name for name in gone if name not in surviving}


def _entry(field: Any, message: Any) -> Any:
    """The pair of key and value that a map consists of; None for what is no map."""
    if field.type != Proto.TYPE_MESSAGE:
        return None
    name = field.type_name.rpartition(".")[2]
    nested = (each for each in message.nested_type if each.name == name and each.options.map_entry)
    return next(nested, None)


def _wire_kind(field: Any) -> str | None:
    """None for messages."""
    if field.type == Proto.TYPE_ENUM:
        return _NUMBER
    return _WIRE_KINDS.get(SCALARS.get(field.type, ""))


def _type_name(field: Any) -> str:
    return SCALARS.get(field.type) or str(field.type_name.lstrip("."))


def _local(name: str, package: str) -> str:
    return name.removeprefix(f"{package}.") if package else name


def _told(kind: str, path: str, text: str) -> str:
    return f"{{errorType:'{kind}', description:'At {path}: {text}'}}"
