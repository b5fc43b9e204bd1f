"""Transforms on columns give what they give record by record, for chains made up at random."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
from pyspark.errors import PySparkException

from ottla.connect.chain import chain_of
from ottla.connect.column_transforms import transformed_columns, without_columns
from ottla.connect.data import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    Struct,
    array_of,
    plain,
    struct_of,
    to_millis,
)
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.plugins import installed
from ottla.connect.records import Header, SinkRecord
from ottla.connect.text import to_text

CHAINS = 16
START = datetime(2024, 2, 28, 22, 0, 0, 789000, tzinfo=UTC)
INNER = struct_of(("x", INT32), ("y", STRING.but(optional=True)), optional=True)
VALUE = struct_of(
    ("id", INT64),
    ("small", INT32),
    ("name", STRING.but(optional=True)),
    ("share", FLOAT64),
    ("yes", BOOLEAN),
    ("digits", STRING),
    ("inner", INNER),
    ("tags", array_of(STRING)),
    optional=True,
)
KEY = STRING.but(optional=True)
DDL = (
    "id bigint, small int, name string, share double, yes boolean, digits string, "
    "inner struct<x: int, y: string>, tags array<string>"
)
COLUMNS = (
    f"key string, value struct<{DDL}>, topic string, partition int, offset bigint, "
    "timestamp timestamp, headers array<struct<key: string, value: binary>>"
)


def value(rng: random.Random, number: int) -> dict[str, Any] | None:
    if number == 5:
        return None
    return {
        "id": rng.choice([0, -1, 300, -40_000, 1 << 40, (1 << 63) - 1]),
        "small": rng.randint(-70_000, 70_000),
        "name": rng.choice([None, "Ada", "true", "TRUE", ""]),
        "share": rng.choice([0.0, 0.5, -1.5, 1e30, -1e30, 250.25]),
        "yes": rng.random() < 0.5,
        "digits": str(rng.randint(-100, 100)),
        "inner": None if rng.random() < 0.3 else {"x": rng.randint(-5, 5), "y": rng.choice([None, "z"])},
        "tags": ["a"] * rng.randint(0, 2),
    }


def made_rows() -> list[tuple[Any, ...]]:
    rng = random.Random(1)
    return [
        (
            rng.choice([None, "k1", "k2"]),
            value(rng, number),
            rng.choice(["orders-eu", "orders-us", "other"]),
            number % 3,
            number,
            START + timedelta(hours=number),
            [("mark", b"1")] if number % 2 else [],
        )
        for number in range(12)
    ]


def as_record(row: tuple[Any, ...]) -> SinkRecord:
    key, fields, topic, partition, offset, stamp, headers = row
    made = None
    if fields is not None:
        inner = fields["inner"]
        made = Struct(VALUE, {**fields, "inner": None if inner is None else Struct(INNER, inner)})
    return SinkRecord(
        topic=topic,
        partition=partition,
        key_schema=KEY,
        key=key,
        value_schema=VALUE,
        value=made,
        timestamp_ms=to_millis(stamp),
        headers=tuple(Header(name, None, data) for name, data in headers),
        offset=offset,
        original_topic=topic,
        original_partition=partition,
    )


def step(rng: random.Random, number: int) -> dict[str, str]:
    fields = ["id", "small", "name", "share", "yes", "digits"]
    some = rng.sample(fields, 2)
    kinds = ["int8", "int16", "int32", "int64", "float64", "boolean", "string"]
    # Text that is no number cannot be cast, which is a case of its own.
    numeric = [name for name in some if name != "name"]
    return rng.choice(
        [
            {"type": "InsertField$Value", "topic.field": f"t{number}", "offset.field": f"o{number}!"},
            {"type": "InsertField$Value", "timestamp.field": f"at{number}", "partition.field": f"p{number}"},
            {"type": "InsertField$Value", "static.field": f"s{number}", "static.value": "me"},
            {"type": "ReplaceField$Value", "exclude": some[0], "renames": f"{some[1]}:r{number}"},
            {"type": "ReplaceField$Value", "include": f"id,digits,inner,{some[0]}"},
            {"type": "Cast$Value", "spec": ",".join(f"{name}:{rng.choice(kinds)}" for name in numeric)},
            {"type": "Cast$Value", "spec": f"name:{rng.choice(['boolean', 'string'])}"},
            {"type": "HoistField$Key", "field": "k"},
            {"type": "RegexRouter", "regex": "orders-(.*)", "replacement": "$1-orders"},
            {
                "type": "TimestampRouter",
                "topic.format": "${topic}.${timestamp}",
                "timestamp.format": "yyyy-MM-dd_HH",
            },
            {"type": "Filter", "predicate": rng.choice(["marked", "tombstone", "eu"])},
            {"type": "Filter", "predicate": "marked", "negate": "true"},
            {"type": "RegexRouter", "regex": ".*", "replacement": "m", "predicate": "marked"},
        ]
    )


def chain_config(rng: random.Random) -> dict[str, str]:
    steps = [step(rng, number) for number in range(rng.randint(1, 4))]
    without_nulls = {"type": "Filter", "predicate": "tombstone"}
    last = rng.choice(
        [
            [],
            [{"type": "ExtractField$Value", "field": "inner.x", "field.syntax.version": "V2"}],
            [{"type": "ExtractField$Value", "field": "id"}, {"type": "Cast$Value", "spec": "string"}],
            [{"type": "HoistField$Value", "field": "all"}],
            [without_nulls, {"type": "ValueToKey", "fields": "digits,inner"}],
            [without_nulls, {"type": "MaskField$Value", "fields": "id,name,tags,yes,share"}],
            [without_nulls, {"type": "MaskField$Value", "fields": "small,digits", "replacement": "7"}],
        ]
    )
    steps += last
    predicates = {
        "marked": {"type": "HasHeaderKey", "name": "mark"},
        "tombstone": {"type": "RecordIsTombstone"},
        "eu": {"type": "TopicNameMatches", "pattern": "orders-e."},
    }
    config = {"transforms": ",".join(f"s{n}" for n in range(len(steps))), "predicates": ",".join(predicates)}
    config |= {
        f"transforms.s{n}.{name}": each for n, given in enumerate(steps) for name, each in given.items()
    }
    config |= {
        f"predicates.{n}.{name}": each for n, given in predicates.items() for name, each in given.items()
    }
    return config


def shown(part: Any) -> Any:
    """As JSON has it, which is what both sides are compared in."""
    return json.loads(json.dumps(plain(part), default=to_text))


def record_by_record(config: dict[str, str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    chain = chain_of(installed(), config)
    changed = [chain.apply(as_record(row)) for row in rows]
    return [
        (each.offset, each.topic, shown(each.key), shown(each.value)) for each in changed if each is not None
    ]


def test_chains_give_the_same_both_ways(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    rng = random.Random(7)
    rows = made_rows()
    frame = spark.createDataFrame(rows, COLUMNS)
    expected: dict[int, list[tuple[Any, ...]]] = {}
    parts: list[Any] = []
    kinds: set[str] = set()
    while len(parts) < CHAINS:
        config = chain_config(rng)
        assert not without_columns(installed(), config)
        number = len(parts)
        wanted = record_by_record(config, rows)
        options = {"ignoreNullFields": "false"}
        changed = transformed_columns(frame, chain_of(installed(), config)).select(
            F.lit(number).alias("chain"),
            "offset",
            "topic",
            F.to_json(F.struct(F.col("key").alias("v")), options).alias("key"),
            F.to_json(F.struct(F.col("value").alias("v")), options).alias("value"),
        )
        expected[number] = wanted
        kinds |= {each for name, each in config.items() if name.endswith(".type")}
        parts.append(changed)
    found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in expected}
    for row in reduce(lambda one, other: one.unionAll(other), parts).collect():
        found[row.chain].append((row.offset, row.topic, json.loads(row.key)["v"], json.loads(row.value)["v"]))
    for number, wanted in expected.items():
        assert sorted(found[number], key=lambda each: each[0]) == wanted, number
    assert len(kinds) >= 10


def test_rows_that_fail_record_by_record_fail_on_columns(spark: Any) -> None:
    rows = made_rows()
    frame = spark.createDataFrame(rows, COLUMNS)
    for transform in (
        {"type": "Cast$Value", "spec": "name:int32"},
        {"type": "MaskField$Value", "fields": "id"},
        {"type": "ValueToKey", "fields": "id"},
    ):
        config = {"transforms": "x"} | {f"transforms.x.{name}": each for name, each in transform.items()}
        with pytest.raises(DataError):
            record_by_record(config, rows)
        with pytest.raises(PySparkException, match=r"out of range|Only Struct objects"):
            transformed_columns(frame, chain_of(installed(), config)).collect()


def test_what_columns_cannot_do_is_said_beforehand(spark: Any) -> None:
    frame = spark.createDataFrame(made_rows(), COLUMNS)

    def refused(**transform: str) -> str:
        config = {"transforms": "x"} | {
            f"transforms.x.{n.replace('_', '.')}": v for n, v in transform.items()
        }
        config |= {"predicates": "t", "predicates.t.type": "RecordIsTombstone"}
        with pytest.raises(ConnectError) as caught:
            transformed_columns(frame, chain_of(installed(), config))
        return str(caught.value)

    assert "has no field nosuch" in refused(type="ExtractField$Value", field="nosuch")
    assert "key.schema" in refused(type="MaskField$Key", fields="a")
    assert "another type" in refused(type="HoistField$Value", field="a", predicate="t")
    assert "has a field id already" in refused(type="InsertField$Value", topic_field="id")
    flatten = {"transforms": "f", "transforms.f.type": "Flatten$Value"}
    assert without_columns(installed(), flatten) == ["Flatten$Value"]
