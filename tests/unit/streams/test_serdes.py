"""Serdes: round trips, Kafka's formats, and what a payload that does not fit says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams import (
    Consumed,
    Materialized,
    SchemaRegistry,
    Serde,
    SerdeError,
    Serdes,
    StreamsBuilder,
    TopologyError,
    Window,
    Windowed,
)
from ottla.streams.records import Change
from ottla.streams.serdes import change_serde


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Shape:
    name: str
    points: list[Point]
    color: Color | None = None
    at: datetime | None = None
    tags: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("serde", "values"),
    [
        (Serdes.string(), st.text()),
        (Serdes.bytes(), st.binary()),
        (Serdes.long(), st.integers(-(2**63), 2**63 - 1)),
        (Serdes.integer(), st.integers(-(2**31), 2**31 - 1)),
        (Serdes.short(), st.integers(-(2**15), 2**15 - 1)),
        (Serdes.double(), st.floats(allow_nan=False)),
        (Serdes.float(), st.floats(allow_nan=False, width=32)),
        (Serdes.boolean(), st.booleans()),
        (Serdes.uuid(), st.uuids()),
        (Serdes.json(), st.recursive(st.one_of(st.none(), st.integers(), st.text()), st.lists)),
        (Serdes.json(Point), st.builds(Point, st.integers(), st.floats(allow_nan=False))),
        (
            Serdes.one_of(Point, Shape),
            st.one_of(
                st.builds(Point, st.integers(), st.floats(allow_nan=False)),
                st.builds(Shape, st.text(), st.lists(st.builds(Point, st.integers()))),
            ),
        ),
        (
            Serdes.avro({"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}),
            st.fixed_dictionaries({"x": st.integers(-(2**63), 2**63 - 1)}),
        ),
        (
            Serdes.time_windowed(str, 10),
            st.builds(lambda k, s: Windowed(k, Window(s, s + 10)), st.text(), st.integers(0, 2**40)),
        ),
        (
            Serdes.session_windowed(int),
            st.builds(lambda k, s: Windowed(k, Window(s, s + 3)), st.integers(0, 9), st.integers(0, 2**40)),
        ),
        (
            change_serde(Serdes.string()),
            st.builds(Change, st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text())),
        ),
    ],
    ids=lambda each: each.name if isinstance(each, Serde) else "",
)
@relaxed
@given(data=st.data())
def test_round_trip(serde: Serde, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    encoded = serde.serialize(value)
    assert serde.deserialize(encoded) == value


def test_null_is_no_bytes() -> None:
    assert Serdes.string().serialize(None) is None
    assert Serdes.long().deserialize(None) is None


def test_numbers_are_written_as_by_kafkas_java_serdes() -> None:
    assert Serdes.long().serialize(258) == b"\x00\x00\x00\x00\x00\x00\x01\x02"
    assert Serdes.integer().serialize(-1) == b"\xff\xff\xff\xff"
    assert Serdes.double().serialize(1.0) == b"\x3f\xf0\x00\x00\x00\x00\x00\x00"
    assert Serdes.uuid().serialize(uuid.UUID(int=1)) == b"00000000-0000-0000-0000-000000000001"


def test_windowed_keys_are_written_as_by_kafka_streams() -> None:
    key = Windowed("k", Window(1, 11))
    assert Serdes.time_windowed(str, 10).serialize(key) == b"k" + (1).to_bytes(8, "big")
    assert Serdes.session_windowed(str).serialize(key) == b"k" + (11).to_bytes(8, "big") + (1).to_bytes(
        8, "big"
    )


def test_a_dataclass_with_everything_in_it() -> None:
    shape = Shape("s", [Point(1), Point(2, 0.5)], Color.RED, datetime(2026, 1, 2, tzinfo=UTC), {"a": 1})
    serde = Serdes.of(Shape)
    assert serde.deserialize(serde.serialize(shape)) == shape


def test_equal_values_have_equal_bytes() -> None:
    assert Serdes.json().serialize({"a": 1, "b": 2}) == Serdes.json().serialize({"b": 2, "a": 1})


def test_the_same_avro_schema_given_twice_is_the_same_serde() -> None:
    schema = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
    assert Serdes.avro(schema) == Serdes.avro(json.dumps(dict(reversed(schema.items()))))
    assert Serdes.avro(schema) != Serdes.avro({**schema, "name": "Q"})
    builder = StreamsBuilder()
    first = builder.stream("in", Consumed.with_(str, Serdes.avro(schema)))
    second = builder.stream("in", Consumed.with_(str, Serdes.avro(dict(schema))))
    first.merge(second).to("out")


def test_an_avro_record_can_be_a_dataclass() -> None:
    schema = {
        "type": "record",
        "name": "Point",
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "double"}],
    }
    serde = Serdes.avro(schema, Point)
    assert serde.deserialize(serde.serialize(Point(3, 4.0))) == Point(3, 4.0)


@pytest.mark.parametrize(
    ("serde", "data", "text"),
    [
        (Serdes.long(), b"12", "is not long: it has 2 bytes instead of 8"),
        (Serdes.string(), b"\xff\xfe", "is not string"),
        (Serdes.json(), b"{", "is not JSON"),
        (Serdes.json(Point), b'{"x":"one"}', "Point.x is 'one', expected int"),
        (Serdes.json(Point), b'{"y":1}', "Point lacks the field 'x'"),
        (Serdes.json(Point, strict=True), b'{"x":1,"z":2}', "unknown field 'z'"),
        (Serdes.json(Shape), b'{"name":"s","points":[{"x":1},{"x":true}]}', r"Shape.points\[1\].x is True"),
        (Serdes.json(Shape), b'{"name":"s","points":[],"color":7}', "Shape.color is 7, expected one of"),
        (Serdes.avro({"type": "long"}), b"\x02\x04", "1 bytes are left over"),
        (Serdes.one_of(Point, Shape), b'{"Line":{}}', "is not JSON of Point or Shape: .* one field"),
        (Serdes.one_of(Point, Shape), b'{"Point":{"x":"one"}}', "Point.x"),
        (Serdes.one_of(Point, Shape), b"[]", "is not JSON of Point or Shape"),
    ],
)
def test_bytes_that_do_not_fit_are_refused_with_the_reason(serde: Serde, data: bytes, text: str) -> None:
    with pytest.raises(SerdeError, match=text):
        serde.deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value", "text"),
    [
        (Serdes.string(), 3, r"3 \(int\) cannot be written as string"),
        (Serdes.long(), "three", r"'three' \(str\) cannot be written as long"),
        (Serdes.bytes(), "text", "cannot be written as bytes"),
        (Serdes.json(), object(), "has no JSON form"),
        (Serdes.one_of(Point, Shape), Color.RED, "it is not Point or Shape"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_remedy(serde: Serde, value: object, text: str) -> None:
    with pytest.raises(SerdeError, match=text):
        serde.serialize(value)


def test_one_of_what_cannot_be_told_apart_is_refused() -> None:
    other = dataclass(type("Point", (), {}))
    for kinds, text in [
        ((), "dataclasses"),
        ((Point, int), "int is none"),
        ((Point, other), "two have one name"),
    ]:
        with pytest.raises(SerdeError, match=text):
            Serdes.one_of(*kinds)


def test_a_type_without_a_serde_is_refused() -> None:
    with pytest.raises(SerdeError, match="no serde is known for"):
        Serdes.of(complex)


def _to_a_topic(builder: StreamsBuilder, sales: Serde) -> None:
    builder.stream("sales", Consumed.with_(str, sales)).to("copies")


def _through_a_repartition_topic(builder: StreamsBuilder, sales: Serde) -> None:
    grouped = builder.stream("sales", Consumed.with_(str, sales)).group_by(lambda key, sale: "all")
    grouped.aggregate(int, lambda key, sale, total: total, Materialized.with_(str, int))


def _into_a_table(builder: StreamsBuilder, sales: Serde) -> None:
    builder.table("sales", Consumed.with_(str, sales), Materialized.as_("sold"))


@pytest.mark.parametrize(
    ("define", "what"),
    [
        (_to_a_topic, "the topic copies"),
        (_through_a_repartition_topic, "the topic .*-repartition"),
        (_into_a_table, "the store sold"),
    ],
)
def test_what_can_only_be_read_is_refused_where_it_would_be_written(
    define: Callable[[StreamsBuilder, Serde], None], what: str
) -> None:
    builder = StreamsBuilder()
    define(builder, SchemaRegistry("http://nowhere").avro(topic="sales"))
    with pytest.raises(TopologyError, match=f"{what} cannot be written as Avro of .*, which lacks a schema"):
        builder.build()


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_many_values_are_read_as_each_of_them_is(numbers: list[int | None]) -> None:
    for kind, given_ in ((int, numbers), (str, [None if n is None else str(n) for n in numbers])):
        serde = Serdes.of(kind)
        column = [serde.serialize(each) for each in given_]
        assert serde.deserialize_all(column) == given_
    short = [b"1234567", b"123456789"]
    with pytest.raises(SerdeError, match="7 bytes instead of 8"):
        Serdes.of(int).deserialize_all(short)  # type: ignore[arg-type]
