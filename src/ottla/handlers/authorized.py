"""Whether who asks may do what is asked, and which operations it may do at all (the bit field of KIP-430).

Without an authorizer everybody may do everything. Which API asks for what is in `authorization`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from kio.static.primitive import i32

from ottla.handlers.context import Broker, RequestContext
from ottla.wire.acls import CLUSTER_NAME, OPERATIONS, AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

if TYPE_CHECKING:
    from ottla.handlers.session import Session

NOT_ASKED = i32(-(2**31))
"""Told to a client that did not ask which operations it may do."""

REFUSALS: dict[AclResource, type[KafkaError]] = {
    AclResource.TOPIC: TopicAuthorizationFailed,
    AclResource.GROUP: GroupAuthorizationFailed,
    AclResource.CLUSTER: ClusterAuthorizationFailed,
    AclResource.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    AclResource.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
    AclResource.USER: DelegationTokenAuthorizationFailed,
}


def may(
    context: RequestContext,
    operation: Operation,
    kind: AclResource,
    name: str = CLUSTER_NAME,
    *,
    quietly: bool = False,
) -> bool:
    """`quietly`: a no is not yet a refusal, because something else may allow it, or it only leaves out."""
    return allowed(context.session, context.api, operation, kind, name, quietly=quietly)


def allowed(
    session: Session,
    api: ApiKey,
    operation: Operation,
    kind: AclResource,
    name: str,
    *,
    quietly: bool = False,
) -> bool:
    """As `may`, for requests without a context."""
    authorizer = session.authorizer
    if authorizer is None:
        return True
    verdict = authorizer.permissions(session).verdict(operation, kind, name)
    audit = authorizer.audit
    if audit is not None and audit.wants(api, verdict) and not (quietly and not verdict.allowed):
        audit.note(_who(session), api, operation, kind, name, verdict)
    return verdict.allowed


def _who(session: Session) -> dict[str, str | None]:
    return {
        "principal": session.principal,
        "host": session.host,
        "listener": session.listener,
        "clientId": session.client_id,
    }


def topic_allowed(
    broker: Broker, session: Session, api: ApiKey, operation: Operation, topic: bytes, *, by_id: bool
) -> bool:
    """For requests that name topics by bytes. What does not exist is none of the authorizer's business."""
    if not by_id:
        return allowed(session, api, operation, AclResource.TOPIC, topic.decode(errors="replace"))
    name = broker.metadata.image.topic_names.get(UUID(bytes=topic))
    return name is None or allowed(session, api, operation, AclResource.TOPIC, name)


def require(
    context: RequestContext,
    operation: Operation,
    kind: AclResource,
    name: str = CLUSTER_NAME,
) -> None:
    """Raises the refusal that belongs to this kind of resource."""
    if not may(context, operation, kind, name):
        raise refusal(operation, kind, name)


def refusal(operation: Operation, kind: AclResource, name: str) -> KafkaError:
    shown = "the cluster" if kind is AclResource.CLUSTER else f"{kind.name.lower().replace('_', ' ')} {name}"
    return REFUSALS[kind](f"needs permission to {operation.name} {shown}")


def may_any(context: RequestContext, operation: Operation, kind: AclResource) -> bool:
    """Whether there can be a resource of this kind with which it may."""
    authorizer = context.session.authorizer
    return authorizer is None or authorizer.permissions(context.session).allows_for_any(operation, kind)


def describable(context: RequestContext, topics: Iterable[str]) -> bool:
    """Whether all of these topics may be described."""
    return context.session.authorizer is None or all(
        may(context, Operation.DESCRIBE, AclResource.TOPIC, name) for name in topics
    )


def operations_on(context: RequestContext, kind: AclResource, name: str = CLUSTER_NAME) -> i32:
    """What the client may do with this resource."""
    session = context.session
    permissions = None if session.authorizer is None else session.authorizer.permissions(session)
    bits = 0
    for operation in OPERATIONS[kind]:
        if permissions is None or permissions.verdict(operation, kind, name).allowed:
            bits |= 1 << operation
    return i32(bits)
