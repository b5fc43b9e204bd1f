"""Converters: values to bytes and back, in Kafka's formats."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.converters.headers import SimpleHeaderConverter
from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from ottla.connect.data import (
    BOOLEAN,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    Struct,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.errors import DataError
from ottla.connect.records import Header
from ottla.connect.text import from_text

VALUE = {"converter.type": "value"}


def json_converter(**more: str) -> JsonConverter:
    return JsonConverter(VALUE | {name.replace("_", "."): value for name, value in more.items()})


def test_json_has_the_schema_beside_the_value() -> None:
    schema = struct_of(("id", INT64), ("name", STRING.but(optional=True)), name="user")
    data = json_converter().to_bytes("t", schema, Struct(schema, {"id": 1}))
    assert json.loads(data or b"") == {
        "schema": {
            "type": "struct",
            "fields": [
                {"type": "int64", "optional": False, "field": "id"},
                {"type": "string", "optional": True, "field": "name"},
            ],
            "optional": False,
            "name": "user",
        },
        "payload": {"id": 1, "name": None},
    }


ROUND_TRIPS: list[tuple[Schema, Any]] = [
    (STRING, "ä"),
    (BOOLEAN, True),
    (INT32, -(2**31)),
    (FLOAT64, 1.5),
    (decimal_of(2), Decimal("-12.34")),
    (decimal_of(2), Decimal("1.28")),
    (DATE_SCHEMA, date(2024, 2, 29)),
    (TIME_SCHEMA, time(12, 34, 56, 789000)),
    (TIMESTAMP_SCHEMA, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    (array_of(INT32), [1, 2]),
    (map_of(STRING, INT32), {"a": 1}),
    (map_of(INT32, STRING), {1: "a"}),
    (STRING.but(optional=True), None),
]


@pytest.mark.parametrize(("schema", "value"), ROUND_TRIPS)
def test_json_with_a_schema_comes_back_as_it_was(schema: Schema, value: Any) -> None:
    converter = json_converter()
    assert converter.from_bytes("t", converter.to_bytes("t", schema, value)) == (schema, value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**30), max_value=10**30))
def test_decimals_are_exact(value: Decimal) -> None:
    converter = json_converter()
    assert converter.from_bytes("t", converter.to_bytes("t", decimal_of(3), value)).value == value


def test_decimals_as_numbers() -> None:
    converter = json_converter(decimal_format="numeric")
    data = converter.to_bytes("t", decimal_of(1), Decimal("1.5"))
    assert json.loads(data or b"")["payload"] == 1.5
    assert converter.from_bytes("t", data).value == Decimal("1.5")


def test_json_without_schemas_is_plain() -> None:
    converter = json_converter(schemas_enable="false")
    schema = struct_of(("id", INT64))
    assert converter.to_bytes("t", schema, Struct(schema, {"id": 1})) == b'{"id":1}'
    assert converter.from_bytes("t", b'{"a":[1,2.5,null]}') == (None, {"a": [1, 2.5, None]})
    assert converter.from_bytes("t", None) == (None, None)
    assert converter.to_bytes("t", None, None) is None


def test_json_of_another_form_is_refused_with_the_remedy() -> None:
    with pytest.raises(DataError, match=r"set schemas\.enable=false"):
        json_converter().from_bytes("t", b'{"id":1}')
    with pytest.raises(DataError, match="is not JSON"):
        json_converter().from_bytes("t", b"\xff{")
    with pytest.raises(DataError, match="Invalid null value for required INT64"):
        json_converter().from_bytes("t", b'{"schema":{"type":"int64"},"payload":null}')
    with pytest.raises(DataError, match="does not fit into INT8"):
        json_converter().from_bytes("t", b'{"schema":{"type":"int8"},"payload":128}')


def test_defaults_take_the_place_of_null_unless_told_otherwise() -> None:
    data = b'{"schema":{"type":"int64","optional":true,"default":7},"payload":null}'
    assert json_converter().from_bytes("t", data).value == 7
    assert json_converter(replace_null_with_default="false").from_bytes("t", data).value is None


def test_a_schema_of_the_configuration_holds_for_all_values() -> None:
    content = '{"type":"struct","fields":[{"field":"id","type":"int64"}]}'
    converter = json_converter(schema_content=content)
    assert converter.from_bytes("t", b'{"id":5}').value["id"] == 5


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (StringConverter, "ä", "ä".encode()),
        (ByteArrayConverter, b"\0\1", b"\0\1"),
        (BooleanConverter, True, b"\1"),
        (ShortConverter, -2, b"\xff\xfe"),
        (IntegerConverter, 1, b"\0\0\0\1"),
        (LongConverter, 1, b"\0" * 7 + b"\1"),
        (DoubleConverter, 1.0, b"\x3f\xf0" + b"\0" * 6),
    ],
)
def test_single_values_in_the_formats_of_kafkas_serializers(kind: Any, value: Any, data: bytes) -> None:
    converter = kind(VALUE)
    assert converter.to_bytes("t", None, value) == data
    assert converter.from_bytes("t", data).value == value
    assert converter.to_bytes("t", None, None) is None
    assert converter.from_bytes("t", None).value is None


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="has 3 bytes instead of 8"):
        LongConverter(VALUE).from_bytes("t", b"abc")
    with pytest.raises(DataError, match="int64"):
        LongConverter(VALUE).to_bytes("t", None, "x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ("text", "text"),
        ('"12"', "12"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("2024-02-29", date(2024, 2, 29)),
        ("2024-02-29T01:02:03.004Z", datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)),
        ("[1, 2", "[1, 2"),
    ],
)
def test_headers_are_read_as_what_they_look_like(text: str, value: Any) -> None:
    assert from_text(text).value == value
    header = SimpleHeaderConverter({}).header_from_bytes("t", "h", text.encode())
    assert header.value == value


def test_headers_that_are_no_text_stay_bytes() -> None:
    assert SimpleHeaderConverter({}).header_from_bytes("t", "h", b"\xff").value == b"\xff"
    assert SimpleHeaderConverter({}).header_to_bytes("t", Header("h", None, True)) == b"true"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(float("nan"), '"NaN"'), (float("inf"), '"Infinity"'), (float("-inf"), '"-Infinity"')],
)
def test_numbers_that_json_has_not_are_words_as_with_java(value: float, shown: str) -> None:
    converter = json_converter(schemas_enable="false")
    assert converter.to_bytes("t", FLOAT64, value) == shown.encode()
    assert converter.to_bytes("t", None, {"n": [value]}) == f'{{"n":[{shown}]}}'.encode()
    with_schema = json_converter()
    data = with_schema.to_bytes("t", FLOAT64, value)
    assert str(with_schema.from_bytes("t", data).value) == str(value)


def test_halves_of_characters_are_question_marks() -> None:
    found = json_converter(schemas_enable="false").from_bytes(
        "t", rb'{"\udfff": ["a\ud800b", "\ud83d\ude00"]}'
    )
    assert found.value == {"?": ["a?b", "\N{GRINNING FACE}"]}


def test_a_value_that_does_not_fit_is_named_by_its_field() -> None:
    inner = struct_of(("n", array_of(INT32)))
    outer = struct_of(("after", inner))
    value = Struct(outer, {"after": Struct(inner, {"n": [[1, 2]]})})
    with pytest.raises(DataError, match=r"after: n: \[1, 2\] is not of type INT32"):
        json_converter().to_bytes("t", outer, value)
