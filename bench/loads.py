"""The loads: what is done to a running broker, and which figures that yields."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bench import kafka_tools, latency, replay
from bench.admin import throw_away_topic
from bench.brokers import RunningBroker
from bench.encoding import ACKS_ALL
from bench.figures import ACKS, PERCENTILES, RATES, RECORD_SIZES
from bench.kafka_peer import KafkaDistribution
from bench.latency import Latency
from bench.replay import PARTITIONS

FIND_COORDINATOR, JOIN_GROUP, INIT_PRODUCER_ID = 10, 11, 22
API_NAMES = {FIND_COORDINATOR: "FindCoordinator", JOIN_GROUP: "JoinGroup", INIT_PRODUCER_ID: "InitProducerId"}
Samples = dict[str, float]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each load goes on. Volumes stay well below what the page cache holds unwritten."""

    rounds: int
    produce_bytes: Mapping[str, int]
    consume_bytes: int
    requests: int
    latency_s: float
    latency_warm_up_s: float
    java_records: Mapping[str, int]
    java_round_trips: int
    warm_ups: int
    starts: int
    peer_starts: int


FULL = Plan(
    rounds=3,
    produce_bytes={"100b": 300_000_000, "1kb": 800_000_000},
    consume_bytes=800_000_000,
    requests=60_000,
    latency_s=8,
    latency_warm_up_s=1,
    java_records={"100b": 1_000_000, "1kb": 250_000},
    java_round_trips=3_000,
    warm_ups=3,
    starts=10,
    peer_starts=3,
)
QUICK = Plan(
    rounds=1,
    produce_bytes={"100b": 60_000_000, "1kb": 200_000_000},
    consume_bytes=200_000_000,
    requests=15_000,
    latency_s=2.5,
    latency_warm_up_s=0.5,
    java_records={"100b": 300_000, "1kb": 80_000},
    java_round_trips=1_000,
    warm_ups=2,
    starts=3,
    peer_starts=1,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A running broker and the means to load it."""

    broker: RunningBroker
    plan: Plan
    tools: KafkaDistribution | None
    apis: set[int]
    _numbers: Iterator[int]

    @classmethod
    def of(cls, broker: RunningBroker, plan: Plan, tools: KafkaDistribution | None, apis: set[int]) -> Target:
        return cls(broker, plan, tools, apis, itertools.count())

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        with throw_away_topic(self.broker.port, f"load-{next(self._numbers)}", partitions) as name:
            yield name


@dataclass(frozen=True, slots=True)
class Load:
    figures: tuple[str, ...]
    measure: Callable[[Target], Samples]
    uses_tools: bool = False
    needs_api: int | None = None

    def obstacle(self, target: Target) -> str | None:
        """Why the load cannot run, or None."""
        if self.uses_tools and target.tools is None:
            return "Apache Kafka's tools are not available"
        if self.needs_api is not None and self.needs_api not in target.apis:
            return f"{self.figures[0]}: the tool needs {API_NAMES[self.needs_api]}, which is not offered"
        return None


def warm_up(target: Target) -> None:
    """A virtual machine compiles what runs often; it gets the time to, outside the clock."""
    plan = target.plan
    for _ in range(plan.warm_ups):
        with target.topic(PARTITIONS) as topic:
            replay.produce(target.broker, topic, 1000, ACKS_ALL, plan.produce_bytes["1kb"] // 2)
            replay.produce(target.broker, topic, 100, ACKS_ALL, plan.produce_bytes["100b"] // 2)
            replay.consume(target.broker, topic, 1000)
            replay.small_requests(target.broker, topic, PARTITIONS, plan.requests // 2)


def all_loads() -> list[Load]:
    sizes_and_acks = list(itertools.product(RECORD_SIZES, ACKS))
    return [
        *(_replay_produce(size, acks) for size, acks in sizes_and_acks),
        Load(("replay.consume.beginning", "replay.cpu.consume"), _replay_consume),
        Load(("replay.consume.tail",), _replay_tail),
        Load(("replay.requests", "replay.requests.cpu"), _replay_requests),
        *(_replay_latency(name) for name in RATES),
        *(_java_produce(size, acks) for size, acks in sizes_and_acks),
        Load(("java.consume.beginning",), _java_consume, uses_tools=True, needs_api=JOIN_GROUP),
        Load(
            tuple(f"java.latency.{name}" for name in PERCENTILES),
            _java_latency,
            uses_tools=True,
            needs_api=FIND_COORDINATOR,
        ),
    ]


def _replay_produce(size: str, acks: str) -> Load:
    figure = f"replay.produce.{size}.{acks}"
    cpu = ("replay.cpu.produce",) if (size, acks) == ("1kb", "acks1") else ()

    def measure(target: Target) -> Samples:
        with target.topic(PARTITIONS) as topic:
            volume = target.plan.produce_bytes[size]
            measured = replay.produce(target.broker, topic, RECORD_SIZES[size], ACKS[acks], volume)
        return {figure: measured.mb_per_s, **dict.fromkeys(cpu, measured.cpu_s_per_gb)}

    return Load((figure, *cpu), measure)


def _replay_consume(target: Target) -> Samples:
    with target.topic(PARTITIONS) as topic:
        replay.produce(target.broker, topic, 1000, ACKS_ALL, target.plan.consume_bytes)
        measured = replay.consume(target.broker, topic, 1000)
    return {"replay.consume.beginning": measured.mb_per_s, "replay.cpu.consume": measured.cpu_s_per_gb}


def _replay_tail(target: Target) -> Samples:
    with target.topic(PARTITIONS) as topic:
        measured = replay.consume_tail(target.broker, topic, 1000, target.plan.consume_bytes)
    return {"replay.consume.tail": measured.mb_per_s}


def _replay_requests(target: Target) -> Samples:
    with target.topic(PARTITIONS) as topic:
        measured = replay.small_requests(target.broker, topic, PARTITIONS, target.plan.requests)
    return {"replay.requests": measured.requests_per_s, "replay.requests.cpu": measured.cpu_us_per_request}


def _replay_latency(name: str) -> Load:
    prefix = f"replay.latency.{name}"

    def measure(target: Target) -> Samples:
        plan = target.plan
        with target.topic(1) as topic:
            waits = latency.measure(
                target.broker.port, topic, RATES[name], plan.latency_s, plan.latency_warm_up_s
            )
        return _percentiles(prefix, waits)

    return Load(tuple(f"{prefix}.{percentile}" for percentile in PERCENTILES), measure)


def _java_produce(size: str, acks: str) -> Load:
    figure = f"java.produce.{size}.{acks}"
    # The Java producer is idempotent by default, but only where it waits for all replicas.
    needs_api = INIT_PRODUCER_ID if ACKS[acks] == ACKS_ALL else None

    def measure(target: Target) -> Samples:
        assert target.tools is not None
        with target.topic(PARTITIONS) as topic:
            rate = kafka_tools.producer_mb_per_s(
                target.tools,
                target.broker.port,
                topic,
                RECORD_SIZES[size],
                target.plan.java_records[size],
                "all" if ACKS[acks] == ACKS_ALL else str(ACKS[acks]),
            )
        return {figure: rate}

    return Load((figure,), measure, uses_tools=True, needs_api=needs_api)


def _java_consume(target: Target) -> Samples:
    assert target.tools is not None
    records = target.plan.java_records["1kb"]
    with target.topic(PARTITIONS) as topic:
        replay.produce(target.broker, topic, 1000, ACKS_ALL, records * 1000)
        rate = kafka_tools.consumer_mb_per_s(target.tools, target.broker.port, topic, 1000, records)
    return {"java.consume.beginning": rate}


def _java_latency(target: Target) -> Samples:
    assert target.tools is not None
    with target.topic(1) as topic:
        waits = kafka_tools.round_trip(
            target.tools, target.broker.port, topic, 100, target.plan.java_round_trips
        )
    return _percentiles("java.latency", waits)


def _percentiles(prefix: str, waits: Latency) -> Samples:
    values = (waits.p50, waits.p99, waits.p999)
    return {f"{prefix}.{name}": value for name, value in zip(PERCENTILES, values, strict=True)}
