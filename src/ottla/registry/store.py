"""What replaying the topic gives: subjects with their versions, settings and modes. No rules, no I/O.

Read by threads while the event loop applies records: each table is copied before it is walked.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ottla.registry import records
from ottla.registry.records import Change
from ottla.registry.schema import Schema, Version, read_version
from ottla.registry.subjects import DEFAULT_CONTEXT, in_context, parse_subject


class Store:
    def __init__(self) -> None:
        self._versions: dict[str, dict[int, Version]] = {}
        self._by_id: dict[tuple[str, int], dict[tuple[str, int], Version]] = defaultdict(dict)
        self._by_digest: dict[tuple[str, bytes], dict[tuple[str, int], Version]] = defaultdict(dict)
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        self._id_max: dict[str, int] = {}
        self._contexts: set[str] = set()
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}

    def apply(self, change: Change) -> None:
        """KeyError, TypeError or ValueError where a value lacks what its key promises."""
        key, value = change.key, change.value
        match key.type:
            case records.SCHEMA:
                if key.subject is None or key.version is None:
                    raise ValueError("its key has no subject or version")
                self._remove(key.subject, key.version)
                if value is not None:
                    self._put(read_version(value))
            case records.CONFIG:
                self._set(self.configs, key.subject, value)
            case records.MODE:
                self._set(self.modes, key.subject, None if value is None else value["mode"])
            case records.DELETE_SUBJECT if value is not None:
                for version in self.versions(value["subject"]):
                    if version.number <= value["version"] and not version.deleted:
                        self._remove(version.subject, version.number)
                        self._put(_deleted(version))
            case records.CLEAR_SUBJECT if value is not None:
                for version in self.versions(value["subject"]):
                    if version.deleted:
                        self._remove(version.subject, version.number)
            case records.CONTEXT if key.context is not None:
                if value is None:
                    self._contexts.discard(key.context)
                else:
                    self._contexts.add(key.context)

    # Versions

    def version(self, subject: str, number: int) -> Version | None:
        return self._versions.get(subject, {}).get(number)

    def versions(self, subject: str) -> list[Version]:
        """Deleted ones too, the oldest first."""
        found = list(self._versions.get(subject, {}).values())
        return sorted(found, key=lambda version: version.number)

    def subjects(self) -> list[str]:
        return sorted(self._versions)

    def of_id(self, context: str, schema_id: int) -> list[Version]:
        """All places of one id, in order."""
        found = list(self._by_id.get((context, schema_id), {}).values())
        return sorted(found, key=lambda version: (version.subject, version.number))

    def equal_to(self, context: str, schema: Schema) -> list[Version]:
        """All places of a schema of this very text."""
        found = list(self._by_digest.get((context, schema.digest), {}).values())
        return [version for version in found if version.schema.type == schema.type]

    def of_guid(self, guid: str) -> list[Version]:
        found = [next(iter(places.values())) for places in list(self._by_digest.values()) if places]
        return [version for version in found if version.schema.guid == guid]

    def referrers(self, subject: str, number: int) -> list[Version]:
        found = [self.version(*place) for place in self._referrers.get((subject, number), ())]
        return [version for version in found if version is not None]

    def next_id(self, context: str) -> int:
        """One that no schema of the context has had, be it deleted since."""
        return self._id_max.get(context, 0) + 1

    def contexts(self) -> list[str]:
        return sorted({DEFAULT_CONTEXT, *self._contexts})

    def _put(self, version: Version) -> None:
        place = (version.subject, version.number)
        context = parse_subject(version.subject).context
        self._versions.setdefault(version.subject, {})[version.number] = version
        self._by_id[context, version.id][place] = version
        self._by_digest[context, version.schema.digest][place] = version
        self._id_max[context] = max(self._id_max.get(context, 0), version.id)
        for reference in version.schema.references:
            self._referrers[in_context(context, reference.subject), reference.version].add(place)

    def _remove(self, subject: str, number: int) -> None:
        """Ids stay counted: one that was given is not given again."""
        version = self._versions.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self._versions[subject]:
            del self._versions[subject]
        place = (subject, number)
        context = parse_subject(subject).context
        for table, key in ((self._by_id, version.id), (self._by_digest, version.schema.digest)):
            places = table[context, key]  # type: ignore[index]
            del places[place]
            if not places:
                del table[context, key]  # type: ignore[arg-type]
        for reference in version.schema.references:
            self._referrers[in_context(context, reference.subject), reference.version].discard(place)

    @staticmethod
    def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
        if value is None:
            table.pop(subject, None)
        else:
            table[subject] = value


def _deleted(version: Version) -> Version:
    return Version(version.subject, version.number, version.id, version.schema, True)
