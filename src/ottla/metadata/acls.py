"""The cluster's access rules, found by what they are about: a decision looks at the few that can matter.

Like the rest of an image they are in persistent maps. Rules for a name are found by it, rules for a prefix by
each beginning of a name for which there is any rule of that length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from immutables import Map

from ottla.wire.acls import WILDCARD, Acl, PatternType

if TYPE_CHECKING:
    from ottla.metadata.access_records import AccessControlEntryRecord

_LITERAL = int(PatternType.LITERAL)
_PREFIXED = int(PatternType.PREFIXED)


class ResourcePattern(NamedTuple):
    resource_type: int
    pattern_type: int
    name: str


Rules = Map[str, Map[UUID, Acl]]
"""Of one pattern, by principal."""


@dataclass(frozen=True, slots=True)
class Acls:
    by_id: Map[UUID, Acl] = field(default_factory=Map)
    by_pattern: Map[ResourcePattern, Rules] = field(default_factory=Map)
    by_principal: Map[str, Map[UUID, Acl]] = field(default_factory=Map)
    prefix_lengths: Map[int, Map[int, int]] = field(default_factory=Map)
    """By resource type: how many prefixes of each length have rules."""

    def __len__(self) -> int:
        return len(self.by_id)

    def matching(self, resource_type: int, name: str) -> Iterator[Rules]:
        """All rules about this resource: for its name, for what it begins with, and for every name."""
        find = self.by_pattern.get
        found = find(ResourcePattern(resource_type, _LITERAL, name))
        if found is not None:
            yield found
        lengths = self.prefix_lengths.get(resource_type)
        if lengths is not None:
            for length in lengths:
                if length <= len(name):
                    found = find(ResourcePattern(resource_type, _PREFIXED, name[:length]))
                    if found is not None:
                        yield found
        found = find(ResourcePattern(resource_type, _LITERAL, WILDCARD))
        if found is not None:
            yield found

    def has(self, acl: Acl) -> bool:
        rules = self.by_pattern.get(_pattern(acl))
        return rules is not None and acl in rules.get(acl.principal, Map()).values()

    def records(self) -> Iterator[AccessControlEntryRecord]:
        """That rebuild these, in the same order for the same rules."""
        from ottla.metadata.access_records import AccessControlEntryRecord

        for identity, acl in sorted(self.by_id.items()):
            yield AccessControlEntryRecord(
                id=identity,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )


class AclsInTheMaking:
    """The next rules, from these and one batch of records."""

    def __init__(self, before: Acls) -> None:
        self._by_id = before.by_id.mutate()
        self._by_pattern = before.by_pattern.mutate()
        self._by_principal = before.by_principal.mutate()
        self._prefix_lengths = before.prefix_lengths

    def add(self, record: AccessControlEntryRecord) -> None:
        self.remove(record.id)
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._by_id[record.id] = acl
        known: Map[UUID, Acl] = self._by_principal.get(acl.principal, Map())
        self._by_principal[acl.principal] = known.set(record.id, acl)
        pattern = _pattern(acl)
        rules = self._by_pattern.get(pattern)
        if rules is None:
            rules = Map()
            self._count_prefix(pattern, 1)
        entries = rules.get(acl.principal, Map())
        self._by_pattern[pattern] = rules.set(acl.principal, entries.set(record.id, acl))

    def remove(self, identity: UUID) -> None:
        acl = self._by_id.pop(identity, None)
        if acl is None:
            return
        known = self._by_principal[acl.principal].delete(identity)
        if known:
            self._by_principal[acl.principal] = known
        else:
            del self._by_principal[acl.principal]
        pattern = _pattern(acl)
        rules = self._by_pattern[pattern]
        entries = rules[acl.principal].delete(identity)
        rules = rules.set(acl.principal, entries) if entries else rules.delete(acl.principal)
        if rules:
            self._by_pattern[pattern] = rules
        else:
            del self._by_pattern[pattern]
            self._count_prefix(pattern, -1)

    def _count_prefix(self, pattern: ResourcePattern, more: int) -> None:
        if pattern.pattern_type != _PREFIXED:
            return
        length = len(pattern.name)
        lengths: Map[int, int] = self._prefix_lengths.get(pattern.resource_type, Map())
        count = lengths.get(length, 0) + more
        lengths = lengths.set(length, count) if count else lengths.delete(length)
        self._prefix_lengths = self._prefix_lengths.set(pattern.resource_type, lengths)

    def finish(self) -> Acls:
        return Acls(
            self._by_id.finish(), self._by_pattern.finish(), self._by_principal.finish(), self._prefix_lengths
        )


def _pattern(acl: Acl) -> ResourcePattern:
    return ResourcePattern(acl.resource_type, acl.pattern_type, acl.resource_name)
