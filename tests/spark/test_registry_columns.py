"""Converters of a schema registry on Spark: what they read and write is what they do record by record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytest.importorskip("fastavro", reason="needs the extra ottla[schemas]")
sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "registry"))

from registry_process import RegistryProcess, call

from ottla.connect.converters.registry import (
    AvroConverter,
    JsonSchemaConverter,
    ProtobufConverter,
    RegistryConverter,
)
from ottla.connect.converters.simple import StringConverter
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Schema,
    Struct,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.running.columns import UNREADABLE, read_columns, written_columns
from ottla.connect.running.environment import Converters
from ottla.testing import InProcessBroker

VALUE = {"converter.type": "value"}
NOON = datetime(2026, 11, 19, 12, 30, 15, 250_000, tzinfo=UTC)
FORMS = (AvroConverter, JsonSchemaConverter, ProtobufConverter)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with InProcessBroker() as broker, RegistryProcess(broker.bootstrap_servers) as process:
        yield process.url


def converters(value: RegistryConverter) -> Converters:
    return Converters(StringConverter({"converter.type": "key"}), value, StringConverter(VALUE))


def made(kind: type[RegistryConverter], registry: str, **given: str) -> RegistryConverter:
    return kind({**VALUE, "schema.registry.url": registry, **given})


def read(
    spark: Any, topic: str, converter: RegistryConverter, values: list[bytes | None], **given: str
) -> list[Any]:
    data = [(topic, None, None if each is None else bytearray(each)) for each in values]
    rows = spark.createDataFrame(data, "topic string, key binary, value binary").coalesce(1)
    settings = {"topics": topic, **{name.replace("_", "."): each for name, each in given.items()}}
    found: list[Any] = (
        read_columns(rows, converters(converter), settings).select("value", UNREADABLE).collect()
    )
    return found


@pytest.mark.parametrize("kind", FORMS)
def test_columns_are_those_of_the_newest_schema(
    spark: Any, registry: str, kind: type[RegistryConverter]
) -> None:
    topic = f"evolved-{kind.form}"
    # Another field is no compatible change of JSON Schema, which has room for any.
    assert call(registry, "PUT", f"/config/{topic}-value", {"compatibility": "NONE"})[0] == 200
    converter = made(kind, registry)
    old = struct_of(("id", INT64), ("name", STRING.but(optional=True)), name="Order")
    new = struct_of(
        ("id", INT64), ("name", STRING.but(optional=True)), ("cents", INT64.but(optional=True)), name="Order"
    )
    values = [
        converter.to_bytes(topic, old, Struct(old, {"id": 1, "name": "größe"})),
        converter.to_bytes(topic, new, Struct(new, {"id": 2, "name": None, "cents": 5})),
        None,
        b"not written with a registry",
        b"\0\0\0\xff\xff{}",
    ]
    first, second, tombstone, poison, stranger = read(spark, topic, converter, values)
    assert first["value"].asDict() == {"id": 1, "name": "größe", "cents": None}
    assert second["value"].asDict() in (
        {"id": 2, "name": None, "cents": 5},
        {"id": 2, "name": "", "cents": 5},
    )
    assert tombstone["value"] is None and tombstone[UNREADABLE] is None
    assert f"the value is not what {kind.__name__} reads" in poison[UNREADABLE]
    assert "does not begin with a zero" in poison[UNREADABLE] and "65535" in stranger[UNREADABLE]


def test_types_of_avro_are_types_of_spark(spark: Any, registry: str) -> None:
    schema = struct_of(
        ("flag", BOOLEAN),
        ("number", INT32),
        ("share", FLOAT64),
        ("raw", BYTES),
        ("price", decimal_of(2)),
        ("day", DATE_SCHEMA),
        ("at", TIMESTAMP_SCHEMA),
        ("tags", array_of(STRING)),
        ("counts", map_of(STRING, INT64)),
        ("inner", struct_of(("x", INT64), name="Inner")),
        name="Everything",
    )
    inner = schema.fields[-1].schema
    value = {
        "flag": True,
        "number": -7,
        "share": 0.5,
        "raw": b"\0\xff",
        "price": Decimal("12.34"),
        "day": date(2026, 11, 19),
        "at": NOON,
        "tags": ["a", "b"],
        "counts": {"a": 1},
        "inner": Struct(inner, {"x": 3}),
    }
    converter = made(AvroConverter, registry)
    data = converter.to_bytes("everything", schema, Struct(schema, value))
    [row] = read(spark, "everything", converter, [data])
    found = row["value"].asDict(recursive=True)
    assert found | {"at": found["at"].astimezone(UTC)} == value | {
        "inner": {"x": 3},
        "raw": bytearray(b"\0\xff"),
    }
    rows = spark.createDataFrame(
        [(None, bytearray(data or b""), "everything")], "key binary, value binary, topic string"
    )
    back = read_columns(rows, converters(converter), {"topics": "everything"}).select("value")
    again = written_columns(back, converters(converter), {"topic": "again"}).collect()[0]["value"]
    assert converter.from_bytes("again", bytes(again)).value.as_dict() | {"inner": None} == value | {
        "inner": None
    }


def test_columns_may_be_said_and_what_does_not_fit_is_told(spark: Any, registry: str) -> None:
    converter = made(AvroConverter, registry)
    number = struct_of(("id", INT64), ("rest", STRING), name="Numbered")
    text = struct_of(("id", STRING), name="Lettered")
    values = [
        converter.to_bytes("numbers", number, Struct(number, {"id": 1, "rest": "left out"})),
        converter.to_bytes("letters", text, Struct(text, {"id": "a"})),
    ]
    fits, odd = read(spark, "some,others", converter, values, value_schema="struct<id: bigint>")
    assert fits["value"].asDict() == {"id": 1}
    assert odd[UNREADABLE].endswith("str is no bigint, which the column is")
    with pytest.raises(ConnectError, match=r"several topics.*value\.schema"):
        read(spark, "some,others", converter, values)
    with pytest.raises(ConnectError, match=r"columns of nothing are not known.*once the topic has a schema"):
        read(spark, "nothing", converter, values)


def test_a_registry_that_is_away_is_no_fault_of_records(spark: Any, registry: str) -> None:
    schema: Schema = struct_of(("id", INT64), name="Away")
    data = made(AvroConverter, registry).to_bytes("away", schema, Struct(schema, {"id": 1}))
    gone = made(AvroConverter, "http://127.0.0.1:9")
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:9 cannot be asked"):
        read(spark, "away", gone, [data])
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9 cannot be asked"):
        read(spark, "away", gone, [data], value_schema="struct<id: bigint>")
