"""JSON Schemas of drafts 4 to 2020-12: checked against their draft, and sorted by what they say about values.

A schema says something about one kind of value (text, objects, …), or it combines others. One that does
both is taken for `allOf` of its parts, so that two schemas can be compared part by part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jsonschema import SchemaError
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats.json_compatibility import unreadable
from ottla.registry.json_text import read_json

if TYPE_CHECKING:
    from ottla.registry.formats import Dependencies, Parsed

_DEFAULT_DRAFT = "http://json-schema.org/draft-07/schema#"
_OWN_URI = "urn:ottla:schema"
_KINDS_BY_KEYWORD = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "unevaluatedProperties",
    ),
    "array": (
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "unevaluatedItems",
    ),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
CRITERIA = ("oneOf", "anyOf", "allOf")


class Node:
    """One schema within a document. `kind` is a type of JSON, or one of the others named below."""

    def __init__(self, kind: str, raw: Any, resolver: Any, parts: list[Node] | None = None) -> None:
        self.kind = kind
        """Also `empty` (takes anything), `false`, `enum`, `const`, `not`, `combined`."""
        self.raw: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        self.criterion = ""
        self.parts = parts or []
        self._resolver = resolver

    @cached_property
    def identity(self) -> tuple[str, str, str]:
        """The same for parts that say the same in the same document."""
        return (self.kind, self.criterion, json.dumps(self.raw, sort_keys=True))

    def inner(self, raw: Any) -> Node:
        return node_of(raw, self._resolver)

    def inner_of(self, keyword: str) -> Node | None:
        return self.inner(self.raw[keyword]) if keyword in self.raw else None

    def inners_of(self, *keywords: str) -> dict[str, Node]:
        return {
            name: self.inner(each)
            for keyword in keywords
            for name, each in self.raw.get(keyword, {}).items()
            if isinstance(each, Mapping | bool)
        }


def node_of(raw: Any, resolver: Any, depth: int = 0) -> Node:
    if isinstance(raw, bool):
        return Node("empty" if raw else "false", raw, resolver)
    if "$ref" in raw:
        found = resolver.lookup(raw["$ref"])
        if depth > 100:
            raise InvalidSchema(f"Invalid JSON schema: {raw['$ref']} refers to itself")
        return node_of(found.contents, found.resolver, depth + 1)
    parts = _parts(raw, resolver)
    if not parts:
        return Node("empty", raw, resolver)
    return parts[0] if len(parts) == 1 else _combined("allOf", raw, resolver, parts)


def _parts(raw: Mapping[str, Any], resolver: Any) -> list[Node]:
    parts: list[Node] = []
    declared = raw.get("type")
    if isinstance(declared, list) and len(declared) > 1:
        parts.append(_combined("anyOf", raw, resolver, [_typed(kind, raw, resolver) for kind in declared]))
    elif declared is not None:
        parts.append(_typed(declared[0] if isinstance(declared, list) else declared, raw, resolver))
    else:
        for kind, keywords in _KINDS_BY_KEYWORD.items():
            if any(keyword in raw for keyword in keywords):
                parts.append(Node(kind, raw, resolver))
    parts += [Node(kind, raw, resolver) for kind in ("enum", "const", "not") if kind in raw]
    for criterion in CRITERIA:
        if criterion in raw:
            inside = [node_of(each, resolver) for each in raw[criterion]] if _is_flat(raw, criterion) else []
            parts.append(_combined(criterion, raw, resolver, inside or _lazily(raw[criterion], resolver)))
    return parts


def _is_flat(raw: Mapping[str, Any], criterion: str) -> bool:
    return not any(isinstance(each, Mapping) and "$ref" in each for each in raw[criterion])


def _lazily(rows: list[Any], resolver: Any) -> list[Node]:
    """A union may refer to itself: what it refers to is read when it is compared."""
    return [Node("ref", each, resolver) if _refers(each) else node_of(each, resolver) for each in rows]


def _refers(raw: Any) -> bool:
    return isinstance(raw, Mapping) and "$ref" in raw


def resolved(node: Node) -> Node:
    return node_of(node.raw, node._resolver) if node.kind == "ref" else node


def _combined(criterion: str, raw: Any, resolver: Any, parts: list[Node]) -> Node:
    made = Node("combined", raw, resolver, parts)
    made.criterion = criterion
    return made


def _typed(kind: str, raw: Any, resolver: Any) -> Node:
    return Node("number" if kind == "integer" else kind, {**raw, "type": kind}, resolver)


class JsonSchema:
    def __init__(self, raw: Any, resolver: Any) -> None:
        self._raw = raw
        self._resolver = resolver

    @cached_property
    def canonical(self) -> str:
        return json.dumps(self._raw, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def normalized(self) -> str:
        return json.dumps(self._raw, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def formatted(self, name: str) -> str:
        if name == "default":
            return self.canonical
        raise InvalidSchema(f"Unsupported format {name}")

    def unreadable(self, written: Parsed) -> list[str]:
        assert isinstance(written, JsonSchema)
        try:
            return unreadable(node_of(self._raw, self._resolver), node_of(written._raw, written._resolver))
        except Unresolvable as error:
            raise InvalidSchema(f"Invalid JSON schema: {error} is referred to and is not there") from None


def parse_json_schema(text: str, dependencies: Dependencies) -> JsonSchema:
    raw = _checked(text)
    resources = [(name, _resource(_checked(each))) for name, each in dependencies]
    # A schema is found by the name of its reference and by the id that it gives itself.
    resources += [(found, resource) for _, resource in resources if (found := resource.id()) is not None]
    own = _resource(raw)
    uri = own.id() or _OWN_URI
    registry: Any = Registry().with_resources([*resources, (uri, own), (_OWN_URI, own)])
    resolver = registry.resolver(base_uri=uri)
    _check_references(raw, resolver)
    return JsonSchema(raw, resolver)


def _checked(text: str) -> Any:
    try:
        raw = read_json(text)
    except ValueError as error:
        raise InvalidSchema(f"Invalid JSON schema: {error}") from None
    if not isinstance(raw, Mapping | bool):
        raise InvalidSchema("Invalid JSON schema: it is neither an object nor true or false")
    try:
        validator_for(raw, default=Draft7Validator).check_schema(raw)
    except SchemaError as error:
        at = "/".join(str(each) for each in error.absolute_path)
        raise InvalidSchema(f"Invalid JSON schema: at #/{at}: {error.message}") from None
    return raw


def _resource(raw: Any) -> Resource[Any]:
    dialect = raw.get("$schema", _DEFAULT_DRAFT) if isinstance(raw, Mapping) else _DEFAULT_DRAFT
    default = specification_with(_DEFAULT_DRAFT)
    return specification_with(dialect, default=default).create_resource(raw)


def _check_references(raw: Any, resolver: Any) -> None:
    if isinstance(raw, Mapping):
        reference = raw.get("$ref")
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                text = f"{reference} is referred to and is not there; give it as one of the references"
                raise InvalidSchema(f"Invalid JSON schema: {text}") from None
        for name, each in raw.items():
            if name not in {"enum", "const", "default", "examples"}:
                _check_references(each, resolver)
    elif isinstance(raw, list):
        for each in raw:
            _check_references(each, resolver)
