"""The transforms that a record passes, each with the predicate that says whether it is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.columns import SourceColumns
from ottla.connect.connector_settings import aliases
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Predicate, Transform
from ottla.connect.plugins import Kind, Plugins
from ottla.connect.records import Record


@dataclass(frozen=True, slots=True)
class Step:
    transform: Transform[Any]
    predicate: Predicate | None
    is_negated: bool


class Chain:
    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def apply(self, record: Record) -> Record | None:
        """None if one of them drops it."""
        for step in self.steps:
            if step.predicate is None or step.predicate.test(record) != step.is_negated:
                changed = step.transform.apply(record)
                if changed is None:
                    return None
                record = changed
        return record

    def apply_columns(self, given: SourceColumns) -> SourceColumns | None:
        """None if one of them wants records."""
        changed: SourceColumns | None = given
        for step in self.steps:
            if changed is None:
                return None
            if step.predicate is not None:
                is_so = step.predicate.test_columns(changed)
                if is_so is None:
                    return None
                if is_so == step.is_negated:
                    continue
            changed = step.transform.apply_columns(changed)
        return changed

    def __bool__(self) -> bool:
        return bool(self.steps)


def chain_of(plugins: Plugins, given: Mapping[str, str]) -> Chain:
    """Raises ConnectError for what cannot be made."""
    predicates: dict[str, Any] = {
        alias: _made(plugins, given, Kind.PREDICATE, f"predicates.{alias}.")
        for alias in aliases(given.get("predicates"))
    }
    steps = []
    for alias in aliases(given.get("transforms")):
        prefix = f"transforms.{alias}."
        name = given.get(f"{prefix}predicate")
        if name is not None and name not in predicates:
            raise ConnectError(f"{prefix}predicate={name}: predicates does not name it")
        is_negated = given.get(f"{prefix}negate", "false").lower() == "true"
        transform = _made(plugins, given, Kind.TRANSFORM, prefix)
        steps.append(Step(transform, None if name is None else predicates[name], is_negated))
    return Chain(steps)


def _made(plugins: Plugins, given: Mapping[str, str], kind: Kind, prefix: str) -> Any:
    found = plugins.find(given.get(f"{prefix}type"), kind)
    if found is None:
        raise ConnectError(f"{prefix}type={given.get(f'{prefix}type')}: there is no such {kind.value}")
    made: Any = found.load()
    return made(
        {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    )
