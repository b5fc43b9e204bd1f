"""AlterUserScramCredentials and DescribeUserScramCredentials, version 0: passwords, as SCRAM keeps them.

Clients send the password salted and stretched, which takes them a while, and is all that a broker needs. The
active controller answers the first; any broker tells of the second what may be known: mechanisms, iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.static.primitive import i8, i32

from ottla.client.scram_keys import HASHES, scram_keys
from ottla.controller.scram_credentials import MECHANISMS, ScramDeletion, ScramOutcome, ScramUpsertion
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.records import RecordType
from ottla.wire.api import ApiKey
from ottla.wire.errors import DuplicateResource, ErrorCode, KafkaError, ResourceNotFound

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import UserScramCredentialRecord


def _altered(context: RequestContext, outcomes: Iterable[ScramOutcome]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        throttle_time=context.session.throttle_time,
        results=tuple(
            AlterUserScramCredentialsResult(
                user=outcome.user,
                error_code=error_code(outcome.error),
                error_message=error_message(outcome.error),
            )
            for outcome in outcomes
        ),
    )


def _refuse_all(
    context: RequestContext, request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(
        [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
    )
    return _altered(context, (ScramOutcome(user, error) for user in users))


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _refuse_all)
async def alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [_upsertion(each) for each in request.upsertions]
    return _altered(context, await broker.controller.alter_scram_credentials(deletions, upsertions))


def _upsertion(each: ScramCredentialUpsertion) -> ScramUpsertion:
    name = MECHANISMS.get(each.mechanism)
    keys = None if name is None else scram_keys(HASHES[name], each.salted_password)
    return ScramUpsertion(each.name, each.mechanism, each.iterations, each.salt, keys)


@handles(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer_with(DescribeUserScramCredentialsResponse, results=())
)
def describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    found: dict[str, list[UserScramCredentialRecord]] = {}
    for key, record in broker.metadata.image.carried.items():
        if key.kind is RecordType.USER_SCRAM_CREDENTIAL:
            credential = cast("UserScramCredentialRecord", record)
            found.setdefault(credential.name, []).append(credential)
    # None at all stand for everybody, as a missing list does.
    asked = Counter(user.name for user in request.users) if request.users else Counter(sorted(found))
    return DescribeUserScramCredentialsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(_described(user, count, found.get(user, [])) for user, count in asked.items()),
    )


def _described(
    user: str, count: int, credentials: list[UserScramCredentialRecord]
) -> DescribeUserScramCredentialsResult:
    error: KafkaError | None = None
    if count > 1:
        error = DuplicateResource(f"Cannot describe SCRAM credentials for the same user twice: {user}")
    elif not credentials:
        error = ResourceNotFound(f"Attempt to describe a user credential that does not exist: {user}")
    known = [] if error is not None else sorted(credentials, key=lambda each: each.mechanism)
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=error_code(error),
        error_message=error_message(error),
        credential_infos=tuple(
            CredentialInfo(mechanism=i8(each.mechanism), iterations=i32(each.iterations)) for each in known
        ),
    )
