"""What may be registered, changed and deleted, and what is found: Confluent's rules over what the topic says.

Nothing here is written: a command gives the records to write and the answer once they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ottla.registry import errors, records
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.formats import COMPATIBILITIES, TYPES, Dependencies, Parsed, incompatibilities, parse
from ottla.registry.records import Change, Key
from ottla.registry.schema import Schema, Version
from ottla.registry.store import Store
from ottla.registry.subjects import ANY_CONTEXT, DEFAULT_CONTEXT, in_context, is_valid, parse_subject

LATEST = -1
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
_CONFIG_FIELDS: dict[str, type] = {
    "alias": str,
    "normalize": bool,
    "compatibilityLevel": str,
    "compatibilityGroup": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}


class Outcome(NamedTuple):
    changes: list[Change]
    answer: Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client asks to register; the id and version are those of an import."""

    schema: Schema
    id: int | None = None
    version: int | None = None


class Rules:
    def __init__(self, store: Store, compatibility: str = "BACKWARD") -> None:
        self._store = store
        self._compatibility = compatibility

    # Finding

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        subject = self._alias(subject)
        found = self._live(subject)[-1:] if number == LATEST else [self._store.version(subject, number)]
        if number == LATEST and not found and deleted:
            found = self._store.versions(subject)[-1:]
        version = found[0] if found else None
        if version is not None and (deleted or not version.deleted):
            return version
        if not self._exists(subject, deleted):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        subject = self._alias(subject)
        if not self._exists(subject, deleted or deleted_only):
            raise errors.subject_not_found(subject)
        return [
            version.number
            for version in self._store.versions(subject)
            if (version.deleted if deleted_only else deleted or not version.deleted)
        ]

    def subjects(
        self, prefix: str = ANY_CONTEXT, *, deleted: bool = False, deleted_only: bool = False
    ) -> list[str]:
        found = []
        for subject in self._store.subjects():
            is_live = bool(self._live(subject))
            if _begins(subject, prefix) and (not is_live if deleted_only else deleted or is_live):
                found.append(subject)
        return found

    def schemas(self, prefix: str, *, deleted: bool = False, latest_only: bool = False) -> list[Version]:
        found: list[Version] = []
        for subject in self._store.subjects():
            if _begins(subject, prefix or ANY_CONTEXT):
                versions = self._store.versions(subject) if deleted else self._live(subject)
                found += versions[-1:] if latest_only else versions
        return found

    def of_id(self, schema_id: int, subject: str | None = None) -> list[Version]:
        """All places of an id, those of soft-deleted versions too: data written with it is still there."""
        if subject:
            places = self._store.of_id(parse_subject(subject).context, schema_id)
        else:
            contexts = [DEFAULT_CONTEXT, *self._store.contexts()]
            tables = (self._store.of_id(context, schema_id) for context in contexts)
            places = next((found for found in tables if found), [])
        if not places:
            raise errors.schema_not_found(schema_id)
        return places

    def of_guid(self, guid: str) -> list[Version]:
        found = self._store.of_guid(guid)
        if not found:
            raise errors.schema_not_found(guid)
        return found

    def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> Version:
        subject = self._alias(subject)
        _, canonical = self._read(subject, schema, normalize)
        found = self._equal(subject, canonical, deleted)
        if found is not None:
            return found
        if not self._exists(subject, deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()

    def latest_with(self, subject: str, metadata: dict[str, str], *, deleted: bool = False) -> Version:
        versions = self._store.versions(subject) if deleted else self._live(subject)
        for version in reversed(versions):
            properties = version.schema.properties
            if all(properties.get(name) == value for name, value in metadata.items()):
                return version
        if not self._exists(subject, deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()

    def referenced_by(self, subject: str, number: int) -> list[int]:
        version = self.version(subject, number, deleted=True)
        found = self._store.referrers(version.subject, version.number)
        return sorted({each.id for each in found if not each.deleted})

    def formatted(self, version: Version, name: str) -> Version:
        """With its text as a client wants it; an empty name is the text as it is."""
        if not name:
            return version
        text = self._parse(version.subject, version.schema).formatted(name)
        return replace(version, schema=replace(version.schema, text=text))

    def reasons_against(
        self, subject: str, schema: Schema, number: int | None, *, normalize: bool = False
    ) -> list[str]:
        """Why a schema may not follow one version, or all that the subject's setting names."""
        subject = self._alias(subject)
        earlier = self._live(subject)
        if number == LATEST:
            earlier = earlier[-1:]
        elif number is not None:
            earlier = [self.version(subject, number)]
        parsed, canonical = self._read(subject, schema, normalize)
        return self._incompatibilities(subject, parsed, canonical, earlier)

    # Settings

    def config(self, subject: str | None, *, or_global: bool = False) -> dict[str, Any]:
        own = self._store.configs.get(subject)
        if subject is None:
            return {"compatibilityLevel": self._compatibility} | _shown_config(own or {})
        if own is not None:
            return (self._config_around(subject) if or_global else {}) | _shown_config(own)
        if or_global:
            return self._config_around(subject)
        raise errors.compatibility_not_configured(subject)

    def mode(self, subject: str | None, *, or_global: bool = False) -> str:
        own = self._store.modes.get(subject)
        if own is not None:
            return own
        if subject is None:
            return READWRITE
        if or_global:
            context = parse_subject(subject).prefix
            return self._store.modes.get(context) or self.mode(None) if context else self.mode(None)
        raise errors.mode_not_configured(subject)

    def contexts(self) -> list[str]:
        return self._store.contexts()

    # Commands

    def register(self, subject: str, wanted: Wanted, *, normalize: bool = False) -> Outcome:
        if not is_valid(subject):
            raise errors.invalid_subject(subject)
        subject = self._alias(subject)
        self._check_may_register(subject, wanted)
        parsed, schema = self._read(subject, wanted.schema, normalize)
        known = self._equal(subject, schema, deleted=False)
        if known is not None and wanted.id in {None, known.id} and wanted.version in {None, known.number}:
            return Outcome([], known)
        all_versions = self._store.versions(subject)
        live = [version for version in all_versions if not version.deleted]
        is_import = wanted.id is not None
        if not is_import:
            reasons = self._incompatibilities(subject, parsed, schema, live)
            if reasons:
                raise errors.incompatible(subject, reasons)
        number = all_versions[-1].number + 1 if all_versions else 1
        if wanted.version is not None:
            if wanted.version != number and not is_import:
                raise InvalidSchema("Version is not one more than previous version")
            number = wanted.version
        version = Version(subject, number, self._id_for(subject, schema, wanted.id), schema)
        changes = list(self._new_context(subject))
        # One text in one subject stands under one version: registered again, it moves on.
        changes += [
            Change(Key(records.SCHEMA, subject, old.number), None)
            for old in all_versions
            if old.deleted and old.id == version.id and old.number < number
            if not self._store.referrers(subject, old.number)
        ]
        changes.append(Change(Key(records.SCHEMA, subject, number), version.value()))
        return Outcome(changes, version)

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> Outcome:
        subject = self._alias(subject)
        version = self.version(subject, number, deleted=True)
        if version.deleted and not permanent:
            raise errors.version_soft_deleted(subject, version.number)
        self._check_may_write(subject)
        if self._referrers_of(version, permanent):
            raise errors.reference_exists(subject, version.number)
        key = Key(records.SCHEMA, subject, version.number)
        if not permanent:
            return Outcome([Change(key, replace(version, deleted=True).value())], version.number)
        if not version.deleted:
            raise errors.version_not_soft_deleted(subject, version.number)
        changes = [Change(key, None)]
        if len(self._store.versions(subject)) == 1:
            changes += self._forget_settings(subject)
        return Outcome(changes, version.number)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> Outcome:
        subject = self._alias(subject)
        if not self._exists(subject, True):
            raise errors.subject_not_found(subject)
        if not permanent and not self._exists(subject, False):
            raise errors.subject_soft_deleted(subject)
        self._check_may_write(subject)
        versions = self._store.versions(subject) if permanent else self._live(subject)
        for version in versions:
            if any(other.subject != subject for other in self._referrers_of(version, permanent)):
                raise errors.reference_exists(subject, version.number)
            if permanent and not version.deleted:
                raise errors.subject_not_soft_deleted(subject)
        numbers = [version.number for version in versions]
        if not permanent:
            value = {"subject": subject, "version": numbers[-1]}
            return Outcome([Change(Key(records.DELETE_SUBJECT, subject), value)], numbers)
        changes = [Change(Key(records.SCHEMA, subject, number), None) for number in reversed(numbers)]
        return Outcome([*changes, *self._forget_settings(subject)], numbers)

    def set_config(self, subject: str | None, wanted: dict[str, Any]) -> Outcome:
        settings = {name: value for name, value in wanted.items() if name in _CONFIG_FIELDS}
        if "compatibility" in wanted:
            settings["compatibilityLevel"] = wanted["compatibility"]
        for name, value in settings.items():
            if value is not None and not isinstance(value, _CONFIG_FIELDS[name]):
                raise RegistryError(400, f"{name} cannot be {value!r}")
        level = settings.get("compatibilityLevel")
        if level is not None:
            settings["compatibilityLevel"] = level = level.upper()
            if level not in COMPATIBILITIES:
                raise errors.invalid_compatibility()
        self._check_setting_of(subject)
        if self.mode(subject, or_global=True) in {READONLY, READONLY_OVERRIDE}:
            raise errors.not_permitted(f"Subject {subject} is in read-only mode")
        kept = {**self._store.configs.get(subject, {}), **settings}
        value = {name: value for name, value in kept.items() if value is not None}
        if subject is not None:
            value["subject"] = subject
        shown = _shown_config(value)
        answer = {"compatibility": shown.pop("compatibilityLevel"), **shown} if level else shown
        return Outcome([Change(Key(records.CONFIG, subject), value)], answer)

    def delete_config(self, subject: str | None) -> Outcome:
        own = self._store.configs.get(subject)
        if own is None and subject is not None:
            raise errors.subject_not_found(subject)
        answer = self.config(subject)
        return Outcome([Change(Key(records.CONFIG, subject), None)], answer)

    def set_mode(self, subject: str | None, wanted: str, *, force: bool = False) -> Outcome:
        mode = wanted.upper()
        if mode not in MODES:
            raise errors.invalid_mode()
        self._check_setting_of(subject)
        changes: list[Change] = []
        if mode == IMPORT and self.mode(subject, or_global=True) != IMPORT and not force:
            prefix = ANY_CONTEXT if subject is None else subject
            if any(_covers(subject, each) for each in self.subjects(prefix)):
                raise errors.not_permitted("Cannot import since found existing subjects")
            for each in self.subjects(prefix, deleted=True):
                if _covers(subject, each):
                    changes += self.delete_subject(each, permanent=True).changes
        value: dict[str, Any] = {"mode": mode} if subject is None else {"subject": subject, "mode": mode}
        return Outcome([*changes, Change(Key(records.MODE, subject), value)], {"mode": mode})

    def delete_mode(self, subject: str | None) -> Outcome:
        if subject not in self._store.modes and subject is not None:
            raise errors.subject_not_found(subject)
        answer = {"mode": self.mode(subject)}
        return Outcome([Change(Key(records.MODE, subject), None)], answer)

    def delete_context(self, context: str) -> Outcome:
        if self.subjects(f":{context}:", deleted=True):
            raise errors.context_not_empty(context)
        return Outcome([Change(Key(records.CONTEXT, context=context), None)], None)

    # Parts of the above

    def _live(self, subject: str) -> list[Version]:
        return [version for version in self._store.versions(subject) if not version.deleted]

    def _exists(self, subject: str, deleted: bool) -> bool:
        return bool(self._store.versions(subject) if deleted else self._live(subject))

    def _alias(self, subject: str) -> str:
        alias = self._store.configs.get(subject, {}).get("alias")
        return in_context(parse_subject(subject).context, alias) if alias else subject

    def _read(self, subject: str, schema: Schema, normalize: bool) -> tuple[Parsed, Schema]:
        """The schema in the one form that equal ones share."""
        if schema.type not in TYPES:
            raise InvalidSchema(f"Invalid schema type {schema.type}; there are {', '.join(TYPES)}")
        if not schema.text.strip():
            raise InvalidSchema("Empty schema")
        parsed = self._parse(subject, schema)
        normalize = normalize or self._config_in_scope(subject).get("normalize") is True
        return parsed, replace(schema, text=parsed.normalized if normalize else parsed.canonical)

    def _parse(self, subject: str, schema: Schema) -> Parsed:
        context = parse_subject(subject).context
        found: dict[str, str] = {}
        self._add_dependencies(context, schema, found, ())
        dependencies: Dependencies = tuple(found.items())
        return parse(schema.type, schema.text, dependencies)

    def _add_dependencies(
        self, context: str, schema: Schema, found: dict[str, str], way: tuple[str, ...]
    ) -> None:
        for reference in schema.references:
            subject = in_context(context, reference.subject)
            try:
                version = self.version(subject, reference.version, deleted=True)
            except RegistryError:
                raise InvalidSchema(
                    f'No schema reference found for subject "{subject}" and version {reference.version}'
                ) from None
            if reference.name not in found and reference.name not in way:
                self._add_dependencies(context, version.schema, found, (*way, reference.name))
                found[reference.name] = version.schema.text

    def _equal(self, subject: str, schema: Schema, deleted: bool) -> Version | None:
        context = parse_subject(subject).context
        places = [
            version
            for version in self._store.equal_to(context, schema)
            if version.subject == subject and (deleted or not version.deleted)
        ]
        return max(places, key=lambda version: (not version.deleted, version.number), default=None)

    def _incompatibilities(
        self, subject: str, parsed: Parsed, schema: Schema, earlier: list[Version]
    ) -> list[str]:
        settings = self._config_in_scope(subject)
        level = settings["compatibilityLevel"]
        group = settings.get("compatibilityGroup")
        if group is not None:
            wanted = schema.properties.get(group)
            earlier = [each for each in earlier if each.schema.properties.get(group) == wanted]
        if level == "NONE" or not earlier:
            return []
        compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
        pairs = [(version, self._parse(version.subject, version.schema)) for version in compared]
        return incompatibilities(level, schema.type, parsed, pairs)

    def _config_in_scope(self, subject: str) -> dict[str, Any]:
        return self.config(subject, or_global=True)

    def _config_around(self, subject: str) -> dict[str, Any]:
        context = parse_subject(subject).prefix
        own = self._store.configs.get(context, {}) if context else {}
        return self.config(None) | _shown_config(own)

    def _id_for(self, subject: str, schema: Schema, wanted: int | None) -> int:
        context = parse_subject(subject).context
        known = self._store.equal_to(context, schema)
        if wanted is None:
            return known[0].id if known else self._store.next_id(context)
        places = self._store.of_id(context, wanted)
        if places and places[0].schema != schema:
            raise errors.not_permitted(f"Overwrite new schema with id {wanted} is not permitted.")
        return wanted

    def _new_context(self, subject: str) -> Iterator[Change]:
        context = parse_subject(subject).context
        if context not in self._store.contexts():
            value = {"tenant": "default", "context": context}
            yield Change(Key(records.CONTEXT, context=context), value)

    def _forget_settings(self, subject: str) -> Iterator[Change]:
        if subject in self._store.modes:
            yield Change(Key(records.MODE, subject), None)
        if subject in self._store.configs:
            yield Change(Key(records.CONFIG, subject), None)

    def _referrers_of(self, version: Version, deleted: bool) -> list[Version]:
        found = self._store.referrers(version.subject, version.number)
        return [each for each in found if deleted or not each.deleted]

    def _check_may_register(self, subject: str, wanted: Wanted) -> None:
        self._check_may_write(subject)
        mode = self.mode(subject, or_global=True)
        if wanted.id is not None and mode != IMPORT:
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if wanted.id is None and mode != READWRITE:
            raise errors.not_permitted(f"Subject {subject} is not in read-write mode")

    def _check_may_write(self, subject: str) -> None:
        if self.mode(subject, or_global=True) in {READONLY, READONLY_OVERRIDE}:
            raise errors.not_permitted(f"Subject {subject} is in read-only mode")

    def _check_setting_of(self, subject: str | None) -> None:
        is_context = subject is not None and re.fullmatch(r":\.[^:]+:", subject) is not None
        if subject is not None and not is_context and not is_valid(subject):
            raise errors.invalid_subject(subject)


def _shown_config(value: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != "subject"}


def _begins(subject: str, prefix: str) -> bool:
    if prefix.startswith(ANY_CONTEXT):
        return parse_subject(subject).name.startswith(prefix.removeprefix(ANY_CONTEXT))
    wanted, found = parse_subject(prefix), parse_subject(subject)
    return wanted.context == found.context and found.name.startswith(wanted.name)


def _covers(setting: str | None, subject: str) -> bool:
    """Whether a setting is one of this subject, of its context, or of all."""
    if setting is None:
        return True
    scope = parse_subject(setting)
    return setting == subject or (not scope.name and parse_subject(subject).context == scope.context)
