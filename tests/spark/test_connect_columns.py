"""Converters on Spark's columns read what they read record by record, and tell of what they cannot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from ottla.connect.errors import DataError
from ottla.connect.plugin import Converter
from ottla.connect.running.columns import UNREADABLE, read_columns
from ottla.connect.running.environment import Converters

VALUE = {"converter.type": "value"}
PLAIN = VALUE | {"schemas.enable": "false"}


def read(spark: Any, converter: Converter, values: list[bytes | None], **given: str) -> list[tuple[Any, Any]]:
    """Each value, and what is wrong with it."""
    data = [(None, None if each is None else bytearray(each)) for each in values]
    rows = spark.createDataFrame(data, "key binary, value binary").coalesce(1)
    converters = Converters(ByteArrayConverter(VALUE), converter, StringConverter(VALUE))
    settings = {name.replace("_", "."): value for name, value in given.items()}
    found = read_columns(rows, converters, settings).select("value", UNREADABLE)
    return [(row["value"], row[UNREADABLE]) for row in found.collect()]


NUMBERS = [0, 1, -1, 127, -128, 2**15 - 1, -(2**15)]


@pytest.mark.parametrize(
    ("converter", "values"),
    [
        (ShortConverter(VALUE), [each.to_bytes(2, "big", signed=True) for each in NUMBERS]),
        (IntegerConverter(VALUE), [each.to_bytes(4, "big", signed=True) for each in (*NUMBERS, -(2**31))]),
        (LongConverter(VALUE), [each.to_bytes(8, "big", signed=True) for each in (*NUMBERS, -(2**63))]),
        (BooleanConverter(VALUE), [b"\0", b"\1"]),
        (StringConverter(VALUE), ["größe".encode(), b""]),
    ],
)
def test_values_are_those_of_each_record(spark: Any, converter: Converter, values: list[bytes]) -> None:
    every = [*values, None, b"\1\2\3", b"\xff\xfe", b"\0" * 9]
    expected: list[tuple[Any, bool]] = []
    for each in every:
        try:
            expected.append((converter.from_bytes("t", each).value, False))
        except DataError:
            expected.append((None, True))
    found = read(spark, converter, every)
    assert [wrong is not None for _, wrong in found] == [wrong for _, wrong in expected]
    readable = [value for value, wrong in found if wrong is None]
    assert readable == [value for value, wrong in expected if not wrong]
    told = next(wrong for _, wrong in found if wrong is not None)
    assert told == f"the value is not what {type(converter).__name__} reads"


def test_json_that_is_no_struct_is_told_of_too(spark: Any) -> None:
    given: Mapping[str, str] = {"value_schema": "array<bigint>"}
    values = [json.dumps([1, 2]).encode(), b"null", None, b"{broken", b'"text"']
    found = read(spark, JsonConverter(PLAIN), values, **given)
    assert [value for value, _ in found[:3]] == [[1, 2], None, None]
    wrong = "the value is not JSON as value.schema has it"
    assert [each for _, each in found] == [None, None, None, wrong, wrong]
