"""What a client is told when its whole request is refused: handlers raise, their APIs say what answers that.

Where each item of a request has an error of its own, the handler catches what concerns the item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias

from ottla.handlers.context import RequestContext
from ottla.handlers.outcome import error_message
from ottla.wire.errors import ErrorCode, KafkaError

Refuse: TypeAlias = Callable[[RequestContext, Any, KafkaError], Any]
"""Of the context, the request and what was raised, makes the response."""
Told: TypeAlias = Callable[[KafkaError, RequestContext], ErrorCode]


def _code(error: KafkaError, context: RequestContext) -> ErrorCode:
    return error.code


def answer_with(response_type: Callable[..., Any], *, told: Told = _code, **values: Any) -> Refuse:
    """A response with the error's code, its message if there is a place for it, and else these values.

    `told` is for clients that do not know every code.
    """
    names = {field.name for field in fields(response_type)}  # type: ignore[arg-type]
    has_throttle_time, has_message = "throttle_time" in names, "error_message" in names

    def refuse(context: RequestContext, request: Any, error: KafkaError) -> Any:
        filled = dict(values, error_code=told(error, context))
        if has_throttle_time:
            filled["throttle_time"] = context.session.throttle_time
        if has_message:
            filled["error_message"] = error_message(error)
        return response_type(**filled)

    return refuse


def fenced_before(first_knowing: int) -> Told:
    """Earlier versions do not know PRODUCER_FENCED and are told of their epoch instead."""

    def told(error: KafkaError, context: RequestContext) -> ErrorCode:
        if error.code is ErrorCode.producer_fenced and context.version < first_knowing:
            return ErrorCode.invalid_producer_epoch
        return error.code

    return told
