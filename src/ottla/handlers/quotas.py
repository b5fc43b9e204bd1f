"""DescribeClientQuotas, AlterClientQuotas, versions 0 to 1: how much clients may do (KIP-546).

v1 flexible
"""

from __future__ import annotations

from kio.schema.alter_client_quotas.v1 import response as altered
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.static.primitive import f64

from ottla.controller.quotas import QuotaAlteration, QuotaChange
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.quotas import Entity
from ottla.runtime.turns import in_turns
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, KafkaError, UnsupportedVersion

EXACT, DEFAULT, ANY = 0, 1, 2
"""How a component of a filter matches: this name, the default of all names, any of both."""
_KINDS = {"user", "client-id", "ip"}


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, answer_with(DescribeClientQuotasResponse, entries=None))
async def describe_client_quotas(
    broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    wanted = _wanted(request)
    quotas = broker.metadata.image.quotas
    entries = [
        EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(ValueData(key=key, value=f64(value)) for key, value in sorted(limits.items())),
        )
        async for entity, limits in in_turns(quotas.items())
        if _matches(wanted, entity, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(entries),
    )


def _wanted(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in request.components:
        kind, how, name = component.entity_type, component.match_type, component.match
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _KINDS:
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if how not in (EXACT, DEFAULT, ANY):
            raise InvalidRequest(f"Unknown match type {how}")
        if (how == EXACT) == (name is None):
            raise InvalidRequest("Give a match string for an exact match, and none for any other.")
        wanted[kind] = how, name
    if "ip" in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    return wanted


def _matches(wanted: dict[str, tuple[int, str | None]], entity: Entity, *, strict: bool) -> bool:
    parts = dict(entity)
    if strict and parts.keys() != wanted.keys():
        return False
    return all(kind in parts and (how == ANY or parts[kind] == name) for kind, (how, name) in wanted.items())


def _refused(
    context: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponse:
    return _altered(context, request, [error] * len(request.entries))


def _altered(
    context: RequestContext,
    request: AlterClientQuotasRequest,
    errors: list[KafkaError | None] | list[KafkaError],
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time=context.session.throttle_time,
        entries=tuple(
            altered.EntryData(
                error_code=error_code(error),
                error_message=error_message(error),
                entity=tuple(
                    altered.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
            )
            for entry, error in zip(request.entries, errors, strict=True)
        ),
    )


@handles(ApiKey.ALTER_CLIENT_QUOTAS, _refused)
async def alter_client_quotas(
    broker: Broker, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple(QuotaChange(op.key, None if op.remove else float(op.value)) for op in entry.ops),
        )
        async for entry in in_turns(request.entries)
    ]
    errors = await broker.controller.alter_client_quotas(alterations, validate_only=request.validate_only)
    return _altered(context, request, errors)
