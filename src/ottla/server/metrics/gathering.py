"""Everything there is to tell of a broker at one moment, for whoever asks for it or is sent it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.handlers.context import Broker
from ottla.runtime.tasks import TaskScope
from ottla.server.listener import ConnectionLimits
from ottla.server.metrics.declared import METRICS, Declared
from ottla.server.metrics.elections import Elections
from ottla.server.metrics.exporter_names import EXPORTER_METRICS
from ottla.server.metrics.group_lag import read_group_lag
from ottla.server.metrics.kafka_names import KAFKA_METRICS
from ottla.server.metrics.numbers import read_numbers
from ottla.server.metrics.sampling import Sampler
from ottla.server.metrics.snapshot import read_snapshot
from ottla.server.metrics.traffic import TrafficMeter

Source: TypeAlias = tuple[Iterable[Declared[Any]], Any]
"""Metrics, and what they are read from."""


class Gathering:
    def __init__(self, broker: Broker, limits: ConnectionLimits, ask_broker: AskBroker) -> None:
        self.broker = broker
        self._limits = limits
        self._ask_broker = ask_broker
        self._meter = TrafficMeter()
        self._elections = Elections()
        self._sampler = Sampler(broker.runtime.clock, broker.figures, broker.quorum, limits.connections)
        self._turn = asyncio.Lock()

    def begin(self, tasks: TaskScope) -> None:
        self._meter.begin(
            each for hosted in self.broker.replicas.by_name.values() for each in hosted.values()
        )
        self.broker.metadata.subscribe(self._elections.apply)
        tasks.spawn(self._sampler.run(), "samples")

    async def sources(self) -> list[Source]:
        broker, limits = self.broker, self._limits
        # One at a time: what a log has grown by since the last look is counted by the one who looks.
        async with self._turn:
            group_lag = await read_group_lag(broker, self._ask_broker)
            snapshot = await read_snapshot(broker, limits, self._meter)
            numbers = read_numbers(
                broker, limits, snapshot, self._meter, self._sampler, self._elections, group_lag
            )
        return [(METRICS, snapshot), (KAFKA_METRICS, numbers), (EXPORTER_METRICS, numbers)]
