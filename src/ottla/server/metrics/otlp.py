"""Metrics sent to a collector of OpenTelemetry, by OTLP over HTTP in its JSON encoding: no package is needed.

Whoever does not take them misses them: the next push has newer ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ottla import __version__
from ottla.config import BrokerConfig
from ottla.runtime.seldom import Seldom
from ottla.runtime.tasks import TaskScope
from ottla.runtime.web import post
from ottla.server.metrics.gathering import Gathering, Source

log = logging.getLogger(__name__)

_CUMULATIVE = 2
_PATH = "/v1/metrics"
_SECONDS_MAX = 10.0


class OtlpPusher:
    def __init__(self, gathering: Gathering, config: BrokerConfig) -> None:
        self._gathering = gathering
        self._interval_seconds = config.integer("ottla.otel.interval.ms") / 1000
        self._url = config.string("ottla.otel.endpoint").rstrip("/") + _PATH
        self._headers = {
            "Content-Type": "application/json",
            **config.otel_headers,
        }
        clock = gathering.broker.runtime.clock
        self._began_ms = clock.now_ms()
        self._clock = clock
        self._says = Seldom(clock)
        self._tasks = TaskScope("otel", lambda name, error: None)

    def start(self) -> None:
        self._tasks.spawn(self._run(), "push")
        log.info("metrics are sent to %s every %g s", self._url, self._interval_seconds)

    async def stop(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self._push()
            except Exception as error:  # A push answers for its own failures; the broker goes on without.
                if self._says.is_due():
                    log.warning("metrics could not be sent to %s: %s; trying again", self._url, error)

    async def _push(self) -> None:
        broker = self._gathering.broker
        sources = await self._gathering.sources()
        resource = {
            "service.name": "ottla",
            "service.version": __version__,
            "service.instance.id": f"{broker.cluster_id}/{broker.node_id}",
        }
        offload = broker.runtime.offload
        body = await offload.run(encode, sources, resource, self._began_ms, self._clock.now_ms())
        await post(self._url, body, self._headers, seconds_max=_SECONDS_MAX)


def encode(sources: Iterable[Source], resource: Mapping[str, str], began_ms: int, now_ms: int) -> bytes:
    """An ExportMetricsServiceRequest."""
    began, now = str(began_ms * 1_000_000), str(now_ms * 1_000_000)
    metrics = []
    for declarations, found in sources:
        for declared in declarations:
            points = [
                {
                    "attributes": _attributes(zip(declared.labels, values, strict=True)),
                    "startTimeUnixNano": began,
                    "timeUnixNano": now,
                    "asDouble": float(value),
                }
                for values, value in declared.samples(found)
                if math.isfinite(value)
            ]
            if not points:
                continue
            kind: dict[str, Any] = {"gauge": {"dataPoints": points}}
            if declared.kind == "counter":
                kind = {
                    "sum": {
                        "dataPoints": points,
                        "aggregationTemporality": _CUMULATIVE,
                        "isMonotonic": True,
                    }
                }
            metrics.append({"name": declared.name, "description": declared.help, **kind})
    return json.dumps(
        {
            "resourceMetrics": [
                {
                    "resource": {"attributes": _attributes(resource.items())},
                    "scopeMetrics": [
                        {"scope": {"name": "ottla", "version": __version__}, "metrics": metrics}
                    ],
                }
            ]
        },
        separators=(",", ":"),
    ).encode()


def _attributes(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in pairs if value]
