"""Access rules come and go. Each is checked for itself; one that is there already needs no record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.command import RECORDS_MAX, Deciding, Result
from ottla.metadata.access_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.uuids import random_uuid
from ottla.wire.acls import CLUSTER_NAME, Acl, AclFilter, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import InvalidRequest, KafkaError

_RESOURCES = frozenset(AclResource) - {AclResource.UNKNOWN, AclResource.ANY}
_PATTERNS = frozenset((PatternType.LITERAL, PatternType.PREFIXED))
_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}
_PERMISSIONS = frozenset((Permission.ALLOW, Permission.DENY))


class AclDeletion(NamedTuple):
    """What a filter did."""

    deleted: tuple[Acl, ...] = ()
    error: KafkaError | None = None


def create_acls(
    image: MetadataImage, acls: Sequence[Acl], rng: random.Random
) -> Deciding[list[KafkaError | None]]:
    records: list[MetadataRecord] = []
    errors: list[KafkaError | None] = []
    new: set[Acl] = set()
    for acl in acls:
        yield
        try:
            check_new(acl)
        except InvalidRequest as error:
            errors.append(error)
            continue
        errors.append(None)
        if acl not in new and not image.acls.has(acl):
            new.add(acl)
            records.append(_record(acl, rng))
    if len(records) > RECORDS_MAX:
        too_many = InvalidRequest(f"Cannot create more than {RECORDS_MAX} acls in a single operation.")
        return Result([], [too_many] * len(acls))
    return Result(records, errors)


def delete_acls(image: MetadataImage, filters: Sequence[AclFilter]) -> Deciding[list[AclDeletion]]:
    records: dict[object, MetadataRecord] = {}
    outcomes: list[AclDeletion] = []
    for wanted in filters:
        if wanted.has_unknown:
            outcomes.append(AclDeletion(error=InvalidRequest("Unknown filter.")))
            continue
        deleted: list[Acl] = []
        for identity, acl in image.acls.by_id.items():
            yield
            if wanted.matches(acl):
                deleted.append(acl)
                records[identity] = RemoveAccessControlEntryRecord(id=identity)
        outcomes.append(AclDeletion(tuple(sorted(deleted))))
    if len(records) > RECORDS_MAX:
        # Nothing, rather than a part that is easily overlooked in a long answer.
        too_many = InvalidRequest(f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation.")
        return Result([], [AclDeletion(error=too_many)] * len(filters))
    return Result(list(records.values()), outcomes)


def check_new(acl: Acl) -> None:
    """Raises InvalidRequest with the reason."""
    for value, known, what in (
        (acl.resource_type, _RESOURCES, "resourceType"),
        (acl.pattern_type, _PATTERNS, "patternType"),
        (acl.operation, _OPERATIONS, "operation"),
        (acl.permission, _PERMISSIONS, "permissionType"),
    ):
        if value not in known:
            raise InvalidRequest(f"Invalid {what} {value}")
    if acl.resource_type == AclResource.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise InvalidRequest("Invalid empty resource name")
    if ":" not in acl.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    if not acl.host:
        raise InvalidRequest("Host pattern cannot be null or empty")


def _record(acl: Acl, rng: random.Random) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=random_uuid(rng),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
