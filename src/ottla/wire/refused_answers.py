"""Which errors an answer has, and whether one says that another node is to be asked: as the active
controller, or on behalf of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


@cache
def list_fields(entity_type: Hashable) -> tuple[str, ...]:
    """The names of its fields that are lists."""
    return tuple(field.name for field in fields(cast(Any, entity_type)) if "tuple[" in str(field.type))


def is_for_another_controller(api_key: ApiKey, answer: Any) -> bool:
    """As Apache Kafka finds it out: any item that was refused so is enough."""
    # Whoever describes the quorum is told of its leader in the words of replication.
    describes = api_key is ApiKey.DESCRIBE_QUORUM
    return _has_error(answer, ErrorCode.not_leader_or_follower if describes else ErrorCode.not_controller)


def _has_error(entity: Any, code: ErrorCode) -> bool:
    if getattr(entity, "error_code", None) is code:
        return True
    return any(
        _has_error(item, code)
        for name in list_fields(cast(Hashable, type(entity)))
        for item in getattr(entity, name) or ()
        if is_dataclass(item)
    )


def error_codes(answer: Any, items_max: int) -> list[int]:
    """Those of an answer and of what it lists; of long lists the first."""
    found: list[int] = []
    _gather(answer, found, items_max)
    return found


def _gather(entity: Any, found: list[int], items_max: int) -> None:
    code = getattr(entity, "error_code", None)
    if code is not None and code is not ErrorCode.none:
        found.append(int(code))
    for name in list_fields(cast(Hashable, type(entity))):
        items = getattr(entity, name) or ()
        if items and is_dataclass(items[0]):
            for item in items[:items_max]:
                _gather(item, found, items_max)
