"""Whose tokens a client may have made, and be told of: with a description comes what one logs in with."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.handlers.context import RequestContext
from ottla.handlers.delegation_tokens import _is_shown, create_delegation_token
from ottla.handlers.session import Session
from ottla.metadata.access_records import AccessControlEntryRecord
from ottla.metadata.acls import AclsInTheMaking
from ottla.metadata.foreign_records import DelegationTokenRecord
from ottla.security.authorizer import Authorizer
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

TOKEN = DelegationTokenRecord(
    owner="User:ann",
    requester="User:ben",
    renewers=("User:cid",),
    issue_timestamp=1,
    max_timestamp=2,
    expiration_timestamp=2,
    token_id="token",
)


def context(principal: str, *rules: tuple[AclResource, str, Operation]) -> RequestContext:
    authorizer = Authorizer(frozenset(), allow_without_rules=False)
    making = AclsInTheMaking(authorizer.acls)
    for number, (kind, name, operation) in enumerate(rules, 1):
        making.add(
            AccessControlEntryRecord(
                id=UUID(int=number),
                resource_type=kind,
                resource_name=name,
                pattern_type=3,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=3,
            )
        )
    authorizer.acls = making.finish()
    session = Session("SASL", "127.0.0.1", 1)
    session.principal = principal
    session.authorizer = authorizer
    return RequestContext(session, 3, 1, ApiKey.CREATE_DELEGATION_TOKEN)


@pytest.mark.parametrize("principal", ["User:ann", "User:ben", "User:cid"])
def test_a_token_is_shown_to_those_it_is_for(principal: str) -> None:
    assert _is_shown(context(principal), TOKEN)


def test_others_need_a_permission() -> None:
    assert not _is_shown(context("User:eve"), TOKEN)
    assert _is_shown(context("User:eve", (AclResource.DELEGATION_TOKEN, "token", Operation.DESCRIBE)), TOKEN)
    assert _is_shown(context("User:eve", (AclResource.USER, "User:ann", Operation.DESCRIBE_TOKENS)), TOKEN)


async def _create(asking: RequestContext) -> Any:
    async def refuse(*_: Any) -> None:
        raise AssertionError("the controller was asked")

    broker: Any = SimpleNamespace(controller=SimpleNamespace(create_delegation_token=refuse))
    request: Any = SimpleNamespace(
        owner_principal_type="User", owner_principal_name="ann", renewers=(), max_lifetime=None
    )
    return await create_delegation_token(broker, asking, request)


def test_nobody_makes_tokens_for_others_without_a_permission() -> None:

    answer = asyncio.run(_create(context("User:eve")))
    assert answer.error_code is ErrorCode.delegation_token_authorization_failed
    allowed = context("User:eve", (AclResource.USER, "User:ann", Operation.CREATE_TOKENS))
    with pytest.raises((AssertionError, TypeError)):
        asyncio.run(_create(allowed))
