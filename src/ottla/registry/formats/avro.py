"""Avro schemas: read with the rules for names, written as Java's Schema.toString does, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats.avro_compatibility import unreadable
from ottla.registry.json_text import read_json

if TYPE_CHECKING:
    from ottla.registry.formats import Dependencies, Parsed

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "error", "enum", "fixed"))
_RESERVED = frozenset(
    ("type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size", "aliases")
)
_FIELD_RESERVED = frozenset(("name", "type", "doc", "default", "order", "aliases"))
_SIZE_MAX = (1 << 31) - 1
NO_DEFAULT = object()


@dataclass(slots=True)
class Field:
    name: str
    type: Type
    default: Any = NO_DEFAULT
    doc: str | None = None
    order: str | None = None
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Type:
    """One node of a schema; named ones appear once, however often they are referred to."""

    kind: str
    name: str = ""
    namespace: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """In full."""
    fields: list[Field] = field(default_factory=list)
    branches: list[Type] = field(default_factory=list)
    """Of a union; of an array or map the one type of what is in it."""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


class AvroSchema:
    def __init__(self, root: Type, elsewhere: Iterable[Type]) -> None:
        self.root = root
        self._elsewhere = frozenset(elsewhere)

    @cached_property
    def canonical(self) -> str:
        return _text(_Writer(self._elsewhere, dict).write(self.root, ""))

    @cached_property
    def normalized(self) -> str:
        return _text(_Writer(self._elsewhere, _in_order).write(self.root, ""))

    def formatted(self, name: str) -> str:
        if name == "resolved":
            return _text(_Writer(frozenset(), dict).write(self.root, ""))
        if name == "default":
            return self.canonical
        raise InvalidSchema(f"Unsupported format {name}")

    def unreadable(self, written: Parsed) -> list[str]:
        assert isinstance(written, AvroSchema)
        return unreadable(self.root, written.root)


def parse_avro(text: str, dependencies: Dependencies) -> AvroSchema:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    known: dict[str, Any] = {}
    names: dict[str, Type] = {}
    try:
        for _, each in dependencies:
            parse_schema(_load(each), known)
            _Reader(names).read(_load(each), "")
        elsewhere = list(names.values())
        raw = _load(text)
        parse_schema(raw, known)
        return AvroSchema(_Reader(names).read(raw, ""), elsewhere)
    except UnknownType as error:
        raise InvalidSchema(f"Invalid Avro schema: no type is named {error.name}") from None
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"Invalid Avro schema: {error}") from None
    except RecursionError:
        raise InvalidSchema("Invalid Avro schema: it is nested too deeply") from None


def _load(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        # Java takes the bare name of a type for a schema.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise


class _Reader:
    def __init__(self, names: dict[str, Type]) -> None:
        self._names = names

    def read(self, raw: Any, namespace: str) -> Type:
        if isinstance(raw, str):
            return self._named(raw, namespace)
        if isinstance(raw, list):
            return Type("union", branches=[self.read(each, namespace) for each in raw])
        kind = raw["type"]
        if not isinstance(kind, str):
            # {"type": {"type": "string"}}: what is around it says nothing more.
            return self.read(kind, namespace)
        properties = {name: value for name, value in raw.items() if name not in _RESERVED}
        if kind in _NAMED:
            return self._define(raw, kind, namespace, properties)
        if kind in {"array", "map"}:
            inner = self.read(raw["items" if kind == "array" else "values"], namespace)
            return Type(kind, branches=[inner], properties=properties)
        if kind in PRIMITIVES:
            return Type(kind, properties=properties)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise ValueError(f"no type is named {full}")
        return found

    def _define(self, raw: dict[str, Any], kind: str, around: str, properties: dict[str, Any]) -> Type:
        namespace, _, name = raw["name"].rpartition(".")
        if not namespace:
            namespace = raw.get("namespace", around) or ""
        aliases = tuple(
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in raw.get("aliases", ())
        )
        made = Type(kind, name, namespace, raw.get("doc"), aliases, properties=properties)
        if self._names.setdefault(made.full_name, made) is not made:
            raise ValueError(f"{made.full_name} is defined twice")
        if kind == "enum":
            made.symbols = tuple(raw["symbols"])
            made.default = made.properties.pop("default", None)
        elif kind == "fixed":
            made.size = int(raw["size"])
            if not 0 <= made.size <= _SIZE_MAX:
                raise ValueError(f"the size of {made.full_name} is {made.size}")
        else:
            made.fields = [self._field(each, namespace) for each in raw["fields"]]
        return made

    def _field(self, raw: dict[str, Any], namespace: str) -> Field:
        return Field(
            raw["name"],
            self.read(raw["type"], namespace),
            raw.get("default", NO_DEFAULT),
            raw.get("doc"),
            raw.get("order"),
            tuple(raw.get("aliases", ())),
            {name: value for name, value in raw.items() if name not in _FIELD_RESERVED},
        )


class _Writer:
    """A named type in full where it first stands, by its name after that; so are those of references."""

    def __init__(
        self, elsewhere: frozenset[Type], arrange: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        self._written = set(elsewhere)
        self._arrange = arrange

    def write(self, type_: Type, namespace: str) -> Any:
        properties = self._arrange(type_.properties)
        if type_.kind == "union":
            return [self.write(each, namespace) for each in type_.branches]
        if type_.kind in {"array", "map"}:
            inside = "items" if type_.kind == "array" else "values"
            return {"type": type_.kind, inside: self.write(type_.branches[0], namespace), **properties}
        if type_.kind in PRIMITIVES:
            return {"type": type_.kind, **properties} if properties else type_.kind
        if type_ in self._written:
            is_near = type_.namespace == namespace and type_.name not in PRIMITIVES
            return type_.name if is_near else type_.full_name
        self._written.add(type_)
        return self._defined(type_, namespace, properties)

    def _defined(self, type_: Type, namespace: str, properties: dict[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = {"type": type_.kind, "name": type_.name}
        if type_.namespace != namespace:
            written["namespace"] = type_.namespace
        if type_.doc is not None:
            written["doc"] = type_.doc
        if type_.kind == "enum":
            written["symbols"] = list(type_.symbols)
            if type_.default is not None:
                written["default"] = type_.default
        elif type_.kind == "fixed":
            written["size"] = type_.size
        else:
            written["fields"] = [self._field(each, type_.namespace) for each in type_.fields]
        written |= properties
        if type_.aliases:
            prefix = f"{type_.namespace}." if type_.namespace else ""
            written["aliases"] = [_without(prefix, alias) for alias in type_.aliases]
        return written

    def _field(self, each: Field, namespace: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": each.name, "type": self.write(each.type, namespace)}
        if each.doc is not None:
            written["doc"] = each.doc
        if each.default is not NO_DEFAULT:
            written["default"] = each.default
        if each.order not in {None, "ascending"}:
            written["order"] = each.order
        if each.aliases:
            written["aliases"] = list(each.aliases)
        return written | self._arrange(each.properties)


def _without(prefix: str, alias: str) -> str:
    rest = alias.removeprefix(prefix)
    return alias if "." in rest else rest


def _in_order(properties: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(properties.items()))


def _text(written: Any) -> str:
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False)
