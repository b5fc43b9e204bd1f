"""Whether data of one JSON Schema can be read with another: is everything valid before still valid.

As strict as Confluent's default: a property that is new to an open object counts as incompatible, since
before anything could have stood there. What is found here is what stands in the way; the rest is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.registry.formats.effort import Effort
from ottla.runtime.regex import RegexError, compile_regex

if TYPE_CHECKING:
    from ottla.registry.formats.json_schema import Node

# Limits that may be raised or dropped, and those that may be lowered or dropped.
_UPPER = {
    "string": ("maxLength",),
    "number": ("maximum", "exclusiveMaximum"),
    "object": ("maxProperties",),
    "array": ("maxItems", "maxContains"),
}
_LOWER = {
    "string": ("minLength",),
    "number": ("minimum", "exclusiveMinimum"),
    "object": ("minProperties",),
    "array": ("minItems", "minContains"),
}


def unreadable(reader: Node, writer: Node) -> list[str]:
    """A schema that refers to itself is taken to fit where it is met again, until it is known not to."""
    known: dict[Any, list[str]] = {}
    effort = Effort()
    while True:
        comparison = _Comparison(known, effort)
        found = comparison.compare(writer, reader, "#")
        unfit = {pair: differences for pair, differences in comparison.done.items() if differences}
        if not comparison.assumed or unfit.keys() == known.keys():
            return found
        known = unfit


class _Comparison:
    def __init__(self, known_unfit: Mapping[Any, list[str]], effort: Effort) -> None:
        self._known_unfit = known_unfit
        self._effort = effort
        self._under_way: set[Any] = set()
        self.done: dict[Any, list[str]] = {}
        self.assumed = False

    def compare(self, old: Node | None, new: Node | None, path: str) -> list[str]:
        from ottla.registry.formats.json_schema import resolved

        if new is None:
            return []
        if old is None:
            return [_told("SCHEMA_ADDED", path, "nothing was said about it before")]
        old, new = resolved(old), resolved(new)
        pair = (old.identity, new.identity)
        if pair in self.done:
            return self.done[pair]
        if pair in self._under_way:
            if pair not in self._known_unfit:
                self.assumed = True
            return self._known_unfit.get(pair, [])
        self._effort.spend()
        self._under_way.add(pair)
        # Each once, however often what is wrong is referred to.
        found = self.done[pair] = list(dict.fromkeys(self._compare(old, new, path)))
        self._under_way.discard(pair)
        return found

    def _fits(self, old: Node, new: Node, path: str) -> bool:
        return not self.compare(old, new, path)

    def _compare(self, old: Node, new: Node, path: str) -> list[str]:
        if (old.kind == "combined") != (new.kind == "combined") and self._fits_a_part(old, new, path):
            return []
        if old.kind != new.kind:
            if old.kind == "false" or new.kind == "empty":
                return []
            if old.raw.get("connect.type") == new.raw.get("connect.type") == "bytes":
                return []
            return [_told("TYPE_CHANGED", path, f"{_name(old)} became {_name(new)}")]
        found = list(_limits(old, new, path))
        match old.kind:
            case "string":
                found += _pattern(old, new, path)
            case "number":
                found += _numbers(old, new, path)
            case "enum":
                found += _enums(old, new, path)
            case "const" if old.raw["const"] != new.raw["const"]:
                found.append(_told("ENUM_ARRAY_CHANGED", f"{path}/const", "the constant changed"))
            case "not":
                if self.compare(new.inner_of("not"), old.inner_of("not"), path):
                    found.append(_told("NOT_TYPE_EXTENDED", f"{path}/not", "more is excluded than before"))
            case "combined":
                found += self._combined(old, new, path)
            case "object":
                found += _Objects(self, old, new, path).compare()
            case "array":
                found += _Arrays(self, old, new, path).compare()
        return found

    def _fits_a_part(self, old: Node, new: Node, path: str) -> bool:
        if new.kind == "combined":
            is_enough = len(new.parts) == 1 or new.criterion in {"oneOf", "anyOf"}
            return is_enough and any(self._fits(old, part, path) for part in new.parts)
        is_enough = len(old.parts) == 1 or old.criterion == "allOf"
        return is_enough and any(self._fits(part, new, path) for part in old.parts)

    def _combined(self, old: Node, new: Node, path: str) -> Iterator[str]:
        if not _criterion_fits(old, new):
            text = f"{old.criterion} became {new.criterion}"
            yield _told("COMBINED_TYPE_CHANGED", path, text)
            return
        old_parts, new_parts = _distinct(old.parts), _distinct(new.parts)
        if len(old_parts) < len(new_parts) and new.criterion == "allOf":
            yield _told("PRODUCT_TYPE_EXTENDED", path, "values have to fit one more schema")
        if len(old_parts) > len(new_parts) and old.criterion != "allOf":
            yield _told("SUM_TYPE_NARROWED", path, "there are fewer schemas that a value may fit")
        fitting = [
            [
                index
                for index, part in enumerate(new_parts)
                if self._fits(each, part, f"{path}/{old.criterion}/{at}")
            ]
            for at, each in enumerate(old_parts)
        ]
        if _matched(fitting) < min(len(old_parts), len(new_parts)):
            text = f"a schema of {old.criterion} has none that fits it"
            yield _told("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path, text)


def _criterion_fits(old: Node, new: Node) -> bool:
    was_alone, is_alone = len(old.parts) == 1, len(new.parts) == 1
    return (
        new.criterion in {old.criterion, "anyOf"}
        or (was_alone and (is_alone or new.criterion == "oneOf"))
        or (is_alone and old.criterion == "allOf")
    )


def _distinct(parts: list[Node]) -> list[Node]:
    return list({part.identity: part for part in parts}.values())


def _matched(fitting: list[list[int]]) -> int:
    """How many can be given one of their own, of those that fit each."""
    taken: dict[int, int] = {}

    def give(one: int, tried: set[int]) -> bool:
        for candidate in fitting[one]:
            if candidate not in tried:
                tried.add(candidate)
                if candidate not in taken or give(taken[candidate], tried):
                    taken[candidate] = one
                    return True
        return False

    return sum(give(one, set()) for one in range(len(fitting)))


class _Contents:
    """Objects and arrays alike: named or numbered contents, and a rule for what has no name or number."""

    more: str
    """The keyword of that rule, and the newer one that goes beyond a single schema."""
    unevaluated: str
    thing: str

    def __init__(self, comparison: _Comparison, old: Node, new: Node, path: str) -> None:
        self._compare = comparison.compare
        self._old, self._new, self._path = old, new, path

    def _more(self, node: Node) -> Node | None:
        return node.inner_of(self.more)

    def _rest(self, node: Node) -> Node | None:
        """What the content without a name has to fit; None where there is no rule."""
        found = self._more(node)
        if found is None or found.kind == "empty":
            found = node.inner_of(self.unevaluated)
        return None if found is None or found.kind == "empty" else found

    def _additional(self) -> Iterator[str]:
        at = f"{self._path}/{self.more}"
        kind = "ADDITIONAL_PROPERTIES" if self.thing == "PROPERTY" else "ADDITIONAL_ITEMS"
        yield from self._rule(self._more(self._old), self._more(self._new), kind, at)
        at = f"{self._path}/{self.unevaluated}"
        kind = kind.replace("ADDITIONAL", "UNEVALUATED")
        old, new = self._old.inner_of(self.unevaluated), self._new.inner_of(self.unevaluated)
        yield from self._rule(old, new, kind, at)

    def _rule(self, old: Node | None, new: Node | None, kind: str, at: str) -> Iterator[str]:
        if new is None or new.kind == "empty" or (old is not None and old.kind == "false"):
            return
        if new.kind == "false":
            yield _told(f"{kind}_REMOVED", at, "what has no name was allowed and is not any more")
        elif old is None or old.kind == "empty":
            yield _told(f"{kind}_NARROWED", at, "what has no name could be anything before")
        else:
            yield from self._compare(old, new, at)

    def _gone(self, old: Node, rest: Node | None, at: str) -> Iterator[str]:
        """`rest` is what content without a name has to fit from now on."""
        if rest is None:
            return
        if rest.kind == "false":
            if old.kind != "false":
                yield _told(f"{self.thing}_REMOVED_FROM_CLOSED_CONTENT_MODEL", at, "it is gone")
        elif inside := self._compare(old, rest, at):
            yield from inside
            text = "what it may be does not fit what it has to be now"
            yield _told(f"{self.thing}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at, text)

    def _covered(self, rest: Node, new: Node, at: str) -> Iterator[str]:
        if inside := self._compare(rest, new, at):
            yield from inside
            text = "what could stand there before does not fit"
            yield _told(f"{self.thing}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at, text)


class _Objects(_Contents):
    more = "additionalProperties"
    unevaluated = "unevaluatedProperties"
    thing = "PROPERTY"

    def compare(self) -> Iterator[str]:
        old, new = self._old.inners_of("properties"), self._new.inners_of("properties")
        required, was_required = self._new.raw.get("required", ()), self._old.raw.get("required", ())
        for name in sorted({*old, *new}):
            at = f"{self._path}/properties/{name}"
            if name not in new:
                yield from self._gone(old[name], self._rest_for(self._new, name), at)
            elif name not in old:
                yield from self._added(name, new[name], name in required, at)
            else:
                yield from self._compare(old[name], new[name], at)
                if name in required and name not in was_required and not self._has_default(name):
                    text = "it has no default and may be missing in what there is"
                    yield _told("REQUIRED_ATTRIBUTE_ADDED", f"{self._path}/required/{name}", text)
        yield from self._dependencies()
        yield from self._additional()

    def _has_default(self, name: str) -> bool:
        raw = self._new.raw["properties"][name]
        return isinstance(raw, Mapping) and "default" in raw

    def _added(self, name: str, node: Node, is_required: bool, at: str) -> Iterator[str]:
        rest = self._rest_for(self._old, name)
        if rest is None and node.kind == "empty":
            return
        if rest is None:
            kind = "REQUIRED_PROPERTY_ADDED" if is_required else "OPTIONAL_PROPERTY_ADDED"
            if is_required and self._has_default(name):
                kind = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED"
            text = "before, anything could have stood under this name"
            yield _told(f"{kind}_TO_OPEN_CONTENT_MODEL", at, text)
            return
        if rest.kind != "false":
            yield from self._covered(rest, node, at)
        if is_required and not self._has_default(name):
            text = "it has no default and is missing in what there is"
            yield _told("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", at, text)

    def _rest_for(self, node: Node, name: str) -> Node | None:
        patterns = node.inners_of("patternProperties")
        for pattern, found in patterns.items():
            if _occurs(pattern, name):
                return found
        rest = self._rest(node)
        if rest is None and patterns:
            # With patterns an object is not open to every name, though nothing forbids them.
            return node.inner(False)
        return rest

    def _dependencies(self) -> Iterator[str]:
        old, new = _required_with(self._old), _required_with(self._new)
        for name, wanted in new.items():
            if not wanted <= old.get(name, frozenset()):
                at = f"{self._path}/dependencies/{name}"
                kind = "EXTENDED" if name in old else "ADDED"
                yield _told(f"DEPENDENCY_ARRAY_{kind}", at, "more properties have to come with it")
        old_schemas = self._old.inners_of("dependencies", "dependentSchemas")
        for name, node in self._new.inners_of("dependencies", "dependentSchemas").items():
            at = f"{self._path}/dependencies/{name}"
            if name in old_schemas:
                yield from self._compare(old_schemas[name], node, at)
            else:
                yield _told("DEPENDENCY_SCHEMA_ADDED", at, "a schema has to fit where it is")


def _occurs(pattern: str, name: str) -> bool:
    """Anywhere in the name. What RE2 lacks, such as looking ahead, is taken not to: a pattern that backtracks
    would hold up everybody."""
    try:
        return compile_regex(f"(?s:.*)(?:{pattern})(?s:.*)").matches(name)
    except RegexError:
        return False


def _required_with(node: Node) -> dict[str, frozenset[str]]:
    rows = {**node.raw.get("dependencies", {}), **node.raw.get("dependentRequired", {})}
    return {name: frozenset(names) for name, names in rows.items() if isinstance(names, list)}


class _Arrays(_Contents):
    unevaluated = "unevaluatedItems"
    thing = "ITEM"
    more = "additionalItems"

    def compare(self) -> Iterator[str]:
        all_old, all_new = _every_item(self._old), _every_item(self._new)
        yield from self._compare(all_old, all_new, f"{self._path}/items")
        old, new = _first_items(self._old), _first_items(self._new)
        for index in range(max(len(old), len(new))):
            at = f"{self._path}/items/{index}"
            if index >= len(new):
                yield from self._gone(old[index], self._rest(self._new), at)
            elif index >= len(old):
                yield from self._added(new[index], at)
            else:
                yield from self._compare(old[index], new[index], at)
        yield from self._additional()
        if self._new.raw.get("uniqueItems") and not self._old.raw.get("uniqueItems"):
            at = f"{self._path}/uniqueItems"
            yield _told("UNIQUE_ITEMS_ADDED", at, "items could be alike before")

    def _more(self, node: Node) -> Node | None:
        keyword = "items" if "prefixItems" in node.raw else self.more
        return node.inner_of(keyword)

    def _added(self, node: Node, at: str) -> Iterator[str]:
        rest = self._rest(self._old)
        if rest is None:
            if node.kind != "empty":
                text = "before, anything could have stood in this place"
                yield _told("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", at, text)
        elif rest.kind != "false":
            yield from self._covered(rest, node, at)


def _every_item(node: Node) -> Node | None:
    items = node.raw.get("items")
    is_one = isinstance(items, Mapping | bool) and "prefixItems" not in node.raw
    return node.inner(items) if is_one else None


def _first_items(node: Node) -> list[Node]:
    rows = node.raw.get("prefixItems", node.raw.get("items"))
    return [node.inner(each) for each in rows] if isinstance(rows, list) else []


def _limits(old: Node, new: Node, path: str) -> Iterator[str]:
    for keywords, sign in ((_UPPER, 1), (_LOWER, -1)):
        for keyword in keywords.get(old.kind, ()):
            before, now = _number(old, keyword), _number(new, keyword)
            kind = re.sub("([A-Z])", r"_\1", keyword).upper()
            if now is not None and before is None:
                yield _told(f"{kind}_ADDED", f"{path}/{keyword}", f"{keyword} is {now}")
            elif now is not None and before is not None and now * sign < before * sign:
                change = "DECREASED" if sign > 0 else "INCREASED"
                yield _told(f"{kind}_{change}", f"{path}/{keyword}", f"{keyword} went from {before} to {now}")


def _number(node: Node, keyword: str) -> Decimal | None:
    value = node.raw.get(keyword)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def _pattern(old: Node, new: Node, path: str) -> Iterator[str]:
    before, now = old.raw.get("pattern"), new.raw.get("pattern")
    if now is not None and now != before:
        kind = "PATTERN_ADDED" if before is None else "PATTERN_CHANGED"
        yield _told(kind, f"{path}/pattern", "what is valid now may not be all that was")


def _numbers(old: Node, new: Node, path: str) -> Iterator[str]:
    before, now = _number(old, "multipleOf"), _number(new, "multipleOf")
    if now is not None and before is None:
        yield _told("MULTIPLE_OF_ADDED", f"{path}/multipleOf", f"multipleOf is {now}")
    elif now is not None and before is not None and before % now != 0:
        kind = "MULTIPLE_OF_EXPANDED" if now % before == 0 else "MULTIPLE_OF_CHANGED"
        yield _told(kind, f"{path}/multipleOf", f"multipleOf went from {before} to {now}")
    if new.raw.get("type") == "integer" and old.raw.get("type") != "integer":
        yield _told("TYPE_NARROWED", path, "number became integer")


def _enums(old: Node, new: Node, path: str) -> Iterator[str]:
    before, now = old.raw["enum"], new.raw["enum"]
    missing = _lacking(now, before)
    if missing:
        kind = "ENUM_ARRAY_CHANGED" if _lacking(before, now) else "ENUM_ARRAY_NARROWED"
        yield _told(kind, f"{path}/enum", f"{missing[0]!r} is not allowed any more")


def _lacking(rows: list[Any], wanted: list[Any]) -> list[Any]:
    """Those that are not among the rows."""
    plain = {each for each in rows if not isinstance(each, list | dict)}
    nested = [each for each in rows if isinstance(each, list | dict)]
    return [each for each in wanted if each not in (nested if isinstance(each, list | dict) else plain)]


def _name(node: Node) -> str:
    return node.criterion or str(node.raw.get("type", node.kind))


def _told(kind: str, path: str, text: str) -> str:
    return f"{{errorType:'{kind}', description:'At {path}: {text}'}}"
