"""Credentials of users for SCRAM: set and removed, each user's for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.scram_keys import ITERATIONS_MIN, ScramKeys
from ottla.controller.command import Deciding, Result, check_size
from ottla.metadata.carried import CarriedKey
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord, RecordType
from ottla.wire.errors import (
    DuplicateResource,
    KafkaError,
    PolicyViolation,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import UserScramCredentialRecord

ITERATIONS_MAX = 16_384
"""A client has to do as many to log in, and so has whoever pretends to be one."""
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By their numbers in requests and records."""


class ScramDeletion(NamedTuple):
    user: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    keys: ScramKeys | None
    """None for a mechanism that is not known."""


class ScramOutcome(NamedTuple):
    user: str
    error: KafkaError | None = None


def alter_scram_credentials(
    image: MetadataImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Deciding[list[ScramOutcome]]:
    """As in Apache Kafka, a request changes one credential of a user at most."""
    records: dict[str, MetadataRecord] = {}
    errors: dict[str, KafkaError] = {}
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for change in changes:
        yield
        user = change.user
        if user in errors:
            continue
        try:
            if records.pop(user, None) is not None:
                raise DuplicateResource("A user credential cannot be altered twice in the same request")
            records[user] = _record(image, change)
        except KafkaError as error:
            errors[user] = error
    try:
        check_size(list(records.values()))
    except PolicyViolation as error:
        return Result([], [ScramOutcome(user, error) for user in (*records, *errors)])
    outcomes = [ScramOutcome(user) for user in records]
    return Result(
        list(records.values()), outcomes + [ScramOutcome(user, error) for user, error in errors.items()]
    )


def credential_record(change: ScramUpsertion) -> UserScramCredentialRecord:
    """Raises UnacceptableCredential for a number of iterations that is not allowed."""
    from ottla.metadata.foreign_records import UserScramCredentialRecord

    assert change.keys is not None
    if change.iterations < ITERATIONS_MIN:
        raise UnacceptableCredential("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise UnacceptableCredential("Too many iterations")
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=change.keys.stored,
        server_key=change.keys.server,
        iterations=change.iterations,
    )


def _record(image: MetadataImage, change: ScramDeletion | ScramUpsertion) -> MetadataRecord:
    from ottla.metadata.foreign_records import RemoveUserScramCredentialRecord

    if not change.user:
        raise UnacceptableCredential("Username must not be empty")
    if change.mechanism not in MECHANISMS:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if isinstance(change, ScramUpsertion):
        return credential_record(change)
    key = CarriedKey(RecordType.USER_SCRAM_CREDENTIAL, (change.mechanism, change.user))
    if key not in image.carried:
        raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
