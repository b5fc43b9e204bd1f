"""GetTelemetrySubscriptions and PushTelemetry (version 0, KIP-714): metrics that clients push.

Subscriptions are settings of resource type CLIENT_METRICS. A push becomes a line of the log, of the logger
`ottla.client_metrics`: who, how much, and the names of the metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from kio.static.primitive import i8, i32, i32Timedelta

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.uuids import uuid_text
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, CorruptRecords, decompress
from ottla.telemetry.otlp import MalformedMetrics, metric_names
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.client_metrics")

# What may come of a push, which has at most telemetry.max.bytes.
INFLATED_BYTES_MAX = 16 * 1024 * 1024
NAMES_SHOWN = 20
NAME_LENGTH_MAX = 100
_ACCEPTED_CODECS = tuple(i8(codec) for codec in (ZSTD, LZ4, GZIP, SNAPPY))


@handles(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    answer_with(
        GetTelemetrySubscriptionsResponse,
        client_instance_id=None,
        subscription_id=i32(0),
        push_interval=i32Timedelta.parse(timedelta()),
        telemetry_max_bytes=i32(0),
        delta_temporality=False,
    ),
)
def get_telemetry_subscriptions(
    broker: Broker, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = broker.telemetry
    instance = telemetry.subscribe(request.client_instance_id, context.session)
    return GetTelemetrySubscriptionsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        client_instance_id=instance.id,
        subscription_id=i32(instance.subscription_id),
        accepted_compression_types=_ACCEPTED_CODECS,
        push_interval=i32Timedelta.parse(timedelta(milliseconds=instance.interval_ms)),
        telemetry_max_bytes=i32(telemetry.push_bytes_max),
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


@handles(ApiKey.PUSH_TELEMETRY, answer_with(PushTelemetryResponse))
async def push_telemetry(
    broker: Broker, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    error = ErrorCode.none
    session = context.session
    try:
        instance = broker.telemetry.check_push(
            request.client_instance_id,
            session,
            subscription_id=request.subscription_id,
            is_terminating=request.terminating,
            codec=request.compression_type,
            size=len(request.metrics),
        )
        if request.metrics:
            names = await broker.runtime.offload.run(_names, request.compression_type, request.metrics)
            log.info(
                "client %r at %s, instance %s, pushed %d bytes with %d metrics%s",
                session.client_id,
                session.address,
                uuid_text(instance.id),
                len(request.metrics),
                len(names),
                _listed(names),
            )
    except (CorruptRecords, MalformedMetrics) as raised:
        log.debug("client %r at %s pushed no metrics: %s", session.client_id, session.address, raised)
        error = ErrorCode.invalid_record
    return PushTelemetryResponse(throttle_time=session.throttle_time, error_code=error)


def _names(codec: int, pushed: bytes) -> list[str]:
    return metric_names(decompress(codec, pushed, INFLATED_BYTES_MAX))


def _listed(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    # Clients choose them, and a line is to stay a line.
    shown = [name[:NAME_LENGTH_MAX].encode("unicode_escape").decode() for name in different[:NAMES_SHOWN]]
    more = len(different) - len(shown)
    return (": " if shown else "") + ", ".join(shown) + (f" and {more} more names" if more else "")
