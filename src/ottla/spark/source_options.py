"""The options of the source, named as in Spark's Kafka source; `kafka.*` are settings of the client."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from ottla.client.cluster import EARLIEST, LATEST
from ottla.spark.sink_options import InvalidOption
from ottla.spark.values import BINARY, ValueFormat, value_format

FETCH_BYTES: Final = 16 * 1024 * 1024
DATA_TIMEOUT_MS: Final = 120_000
MAX_TRIGGER_DELAY: Final = "15m"

_PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_NAMES = (
    *_SUBSCRIPTIONS,
    *_ENDINGS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxTaskIdleMs",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "filterPushdown",
    "valueFormat",
    "valueSchema",
    "valueMode",
    "schemaRegistryUrl",
    # Taken, without effect: no consumer group is used, and offsets are asked for with the client's retries.
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "bootstrap.servers",
)
_BY_LOWER_CASE = {name.lower(): name for name in _NAMES}
_SPECIAL = {"earliest": EARLIEST, "latest": LATEST}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end: EARLIEST or LATEST or an offset, or else the first record from a time on."""

    everywhere: int | None = None
    offsets: tuple[tuple[tuple[str, int], int], ...] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: tuple[tuple[tuple[str, int], int], ...] | None = None
    option: str = ""
    """As the user named it, for errors."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap_servers: str
    client: tuple[tuple[str, str], ...]
    """Settings of the connection: security, timeouts."""
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_none_so_young: bool
    read_committed: bool
    include_headers: bool
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_task_idle_ms: int
    """How long records wait for partitions of their number in other topics that have none."""
    min_partitions: int | None
    max_records_per_partition: int | None
    fetch_bytes: int
    data_timeout_ms: int
    filter_pushdown: bool
    """Off unless asked for: Spark 4.3 keeps filters that were pushed down once for every later query on the
    same data frame, so it is only right for a frame that is used for one query."""
    values: ValueFormat = BINARY

    @property
    def client_properties(self) -> dict[str, str]:
        return dict(self.client)


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises InvalidOption."""
    given = _known(options)
    client = {
        name.lower()[len(_PREFIX) :]: str(value)
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    bootstrap_servers = client.pop(_BOOTSTRAP, None) or given.get(_BOOTSTRAP)
    if not bootstrap_servers:
        raise InvalidOption(
            f"The option {_PREFIX}{_BOOTSTRAP} is missing: set it to brokers of the cluster to read from, "
            "such as localhost:9092."
            + (
                ""
                if options
                else " Spark does not hand the options of a CREATE TABLE on: use CREATE TEMPORARY VIEW."
            )
        )
    isolation = client.pop("isolation.level", "read_uncommitted")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidOption(
            f"kafka.isolation.level is {isolation!r}; it is read_committed or read_uncommitted."
        )
    starting, ending = _positions(given, streaming)
    subscription = _subscription(given)
    strategy = given.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy is {strategy!r}; it is error or latest.")
    fetch_bytes = client.pop("max.partition.fetch.bytes", str(FETCH_BYTES))
    return SourceOptions(
        bootstrap_servers,
        tuple(sorted(client.items())),
        subscription,
        starting,
        ending,
        strategy == "latest",
        isolation == "read_committed",
        _boolean(given, "includeHeaders", False),
        _boolean(given, "failOnDataLoss", True),
        _positive(given, "maxOffsetsPerTrigger"),
        _positive(given, "minOffsetsPerTrigger"),
        _duration_ms("maxTriggerDelay", given.get("maxTriggerDelay", MAX_TRIGGER_DELAY)),
        _whole("maxTaskIdleMs", given.get("maxTaskIdleMs", "0")),
        _positive(given, "minPartitions"),
        _positive(given, "maxRecordsPerPartition"),
        _whole("kafka.max.partition.fetch.bytes", fetch_bytes),
        _positive(given, "kafkaConsumer.pollTimeoutMs") or DATA_TIMEOUT_MS,
        _boolean(given, "filterPushdown", False),
        value_format(given, subscription.topics),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(_PREFIX):
            continue
        known = _BY_LOWER_CASE.get(name.lower())
        if known is None:
            close = get_close_matches(name.lower(), _BY_LOWER_CASE, n=1)
            meant = f"; did you mean {_BY_LOWER_CASE[close[0]]}?" if close else ""
            raise InvalidOption(
                f"The source has no option {name}{meant} Settings of the Kafka client begin with {_PREFIX}."
            )
        given[known] = str(value)
    return given


def _subscription(given: Mapping[str, str]) -> Subscription:
    used = [name for name in _SUBSCRIPTIONS if name in given]
    if len(used) != 1:
        raise InvalidOption(
            f"Set exactly one of {', '.join(_SUBSCRIPTIONS)} to say what to read; "
            + (f"set are {', '.join(used)}." if used else "none is set.")
        )
    value = given[used[0]]
    if used[0] == "subscribe":
        topics = tuple(sorted({name.strip() for name in value.split(",")} - {""}))
        if not topics:
            raise InvalidOption("subscribe names no topic; set it to one or more, separated by commas.")
        return Subscription(topics=topics)
    if used[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidOption(f"subscribePattern {value!r} is no regular expression: {error}.") from error
        if not value:
            raise InvalidOption("subscribePattern is empty; set it to a regular expression of topic names.")
        return Subscription(pattern=value)
    example = '{"topic": [0, 1]}'
    parsed = _json("assign", value, example)
    partitions = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_number(number) for number in numbers):
            raise InvalidOption(f"assign: the partitions of {topic} are {numbers!r}; expected is {example}.")
        partitions += [(topic, number) for number in numbers]
    if not partitions:
        raise InvalidOption(f"assign names no partition; expected is {example}.")
    return Subscription(partitions=tuple(sorted(set(partitions))))


def _positions(given: Mapping[str, str], streaming: bool) -> tuple[Position, Position]:
    starting = _position(given, "starting", LATEST if streaming else EARLIEST)
    if streaming:
        if used := [name for name in _ENDINGS if name in given]:
            raise InvalidOption(f"{used[0]} has no meaning for a stream, which does not end; leave it out.")
        return starting, Position(everywhere=LATEST, option="endingOffsets")
    ending = _position(given, "ending", LATEST)
    if LATEST in (starting.everywhere, *(offset for _, offset in starting.offsets or ())):
        raise InvalidOption("startingOffsets is latest: a batch would read nothing; use earliest or offsets.")
    if EARLIEST in (ending.everywhere, *(offset for _, offset in ending.offsets or ())):
        raise InvalidOption("endingOffsets is earliest: a batch would read nothing; use latest or offsets.")
    return starting, ending


def _position(given: Mapping[str, str], side: str, default: int) -> Position:
    """A time for all partitions wins over times for each, and those over offsets, as in Spark's source."""
    if (text := given.get(name := f"{side}Timestamp")) is not None:
        return Position(timestamp_ms=_whole(name, text), option=name)
    if (text := given.get(name := f"{side}OffsetsByTimestamp")) is not None:
        return Position(timestamps_ms=_per_partition(name, text, 0), option=name)
    name = f"{side}Offsets"
    text = given.get(name)
    if text is None:
        return Position(everywhere=default, option=name)
    if text.strip().lower() in _SPECIAL:
        return Position(everywhere=_SPECIAL[text.strip().lower()], option=name)
    return Position(offsets=_per_partition(name, text, EARLIEST), option=name)


def _per_partition(name: str, text: str, minimum: int) -> tuple[tuple[tuple[str, int], int], ...]:
    example = '{"topic": {"0": 23, "1": 0}}'
    found = {}
    for topic, numbers in _json(name, text, example).items():
        if not isinstance(numbers, dict):
            raise InvalidOption(f"{name}: {topic} has {numbers!r}; expected is {example}.")
        for partition, number in numbers.items():
            if not partition.isdecimal() or not _is_number(number) or number < minimum:
                raise InvalidOption(
                    f"{name}: partition {partition!r} of {topic} has {number!r}; expected is {example}."
                )
            found[topic, int(partition)] = number
    return tuple(sorted(found.items()))


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOption(
            f"{name} is {text!r}, which is no JSON ({error}); expected is something like {example}."
        ) from None
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{name} is {text!r}; expected is something like {example}.")
    return parsed


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name} is {text!r}; it is true or false.")
    return text == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    number = _whole(name, given[name])
    if number == 0:
        raise InvalidOption(f"{name} is 0; it has to be greater.")
    return number


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidOption(f"{name} is {text!r}; it has to be a whole number.")
    return int(text)


def _duration_ms(name: str, text: str) -> int:
    matched = _DURATION.fullmatch(text.strip().lower())
    if matched is None:
        raise InvalidOption(f"{name} is {text!r}; it has to be a time such as 500ms, 30s or 15m.")
    return int(matched[1]) * _UNIT_MS[matched[2]]
