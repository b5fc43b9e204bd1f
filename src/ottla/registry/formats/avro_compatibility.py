"""Whether data of one Avro schema can be read with another: Avro's rules of schema resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.registry.formats.effort import Effort

if TYPE_CHECKING:
    from ottla.registry.formats.avro import Field, Type

# What a reader's type takes besides its own kind.
_PROMOTED = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_RECORDS = {"record", "error"}


def unreadable(reader: Type, writer: Type) -> list[str]:
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._seen: dict[tuple[Type, Type], list[str]] = {}
        self._by_name: dict[Type, dict[str, Field]] = {}
        self._effort = Effort()

    def compare(self, reader: Type, writer: Type, path: str) -> list[str]:
        known = self._seen.get((reader, writer))
        if known is not None:
            return known
        self._effort.spend()
        # Met again while it is compared: whatever is wrong with it is found where it was met first.
        self._seen[reader, writer] = []
        # Each once: a type in two fields, each of a type in two fields, is wrong in one place.
        found = self._seen[reader, writer] = list(dict.fromkeys(self._compare(reader, writer, path)))
        return found

    def _compare(self, reader: Type, writer: Type, path: str) -> list[str]:
        if writer.kind == "union" and reader.kind == "union":
            return [
                _told("MISSING_UNION_BRANCH", f"{path}/{number}", text, f"{_name(branch)}")
                for number, branch in enumerate(writer.branches)
                if self.compare(reader, branch, path)
                for text in [f"the new schema cannot read the branch {_name(branch)} of the old one"]
            ]
        if writer.kind == "union":
            return [text for branch in writer.branches for text in self.compare(reader, branch, path)]
        if reader.kind == "union":
            if any(not self.compare(branch, writer, path) for branch in reader.branches):
                return []
            text = f"no branch of the new union can read {_name(writer)} of the old schema"
            return [_told("MISSING_UNION_BRANCH", path, text, _name(writer))]
        if reader.kind == writer.kind or {reader.kind, writer.kind} <= _RECORDS:
            return self._compare_same_kind(reader, writer, path)
        if writer.kind in _PROMOTED.get(reader.kind, ()):
            return []
        text = f"{_name(reader)} of the new schema cannot read {_name(writer)} of the old one"
        return [_told("TYPE_MISMATCH", path, text, f"reader type: {reader.kind}, writer type: {writer.kind}")]

    def _compare_same_kind(self, reader: Type, writer: Type, path: str) -> list[str]:
        if reader.kind in {"array", "map"}:
            inside = "items" if reader.kind == "array" else "values"
            return self.compare(reader.branches[0], writer.branches[0], f"{path}/{inside}")
        if not reader.name:
            return []
        if reader.name != writer.name and writer.full_name not in reader.aliases:
            text = f"the new name {reader.full_name} is neither {writer.full_name} nor has it as an alias"
            return [_told("NAME_MISMATCH", f"{path}/name", text, f"expected: {writer.full_name}")]
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            text = f"the new size {reader.size} is not the old one, {writer.size}"
            return [_told("FIXED_SIZE_MISMATCH", f"{path}/size", text, str(reader.size))]
        if reader.kind == "enum":
            return _compare_symbols(reader, writer, path)
        return self._compare_fields(reader, writer, path)

    def _compare_fields(self, reader: Type, writer: Type, path: str) -> list[str]:
        from ottla.registry.formats.avro import NO_DEFAULT

        found: list[str] = []
        written = self._by_name.setdefault(writer, {each.name: each for each in reversed(writer.fields)})
        for number, field in enumerate(reader.fields):
            at = f"{path}/fields/{number}"
            names = (name for name in (field.name, *field.aliases) if name in written)
            source = next((written[name] for name in names), None)
            if source is not None:
                found += self.compare(field.type, source.type, f"{at}/type")
            elif field.default is NO_DEFAULT:
                text = f"the field '{field.name}' of the new schema has no default and is missing in the old"
                found.append(_told("READER_FIELD_MISSING_DEFAULT_VALUE", at, text, field.name))
        return found


def _compare_symbols(reader: Type, writer: Type, path: str) -> list[str]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not None:
        return []
    text = f"the new enum {reader.full_name} has no default and lacks symbols of the old one"
    return [_told("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text, f"[{', '.join(missing)}]")]


def _name(type_: Type) -> str:
    return type_.full_name or type_.kind


def _told(kind: str, path: str, text: str, more: str) -> str:
    return f"{{errorType:'{kind}', description:'At {path or '/'}: {text}', additionalInfo:'{more}'}}"
