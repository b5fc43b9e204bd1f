"""Values that are decoded while topics are read, without Spark running."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

import pyarrow as pa
from fastavro import schemaless_writer

from ottla.client.schema_registry import RegistryUnreachable, framed
from ottla.spark.sink_options import InvalidOption
from ottla.spark.values import UnfitValue, ValueFormat, avro_type, decoded, value_format

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
ARROW = pa.struct([("id", pa.int64()), ("note", pa.string()), ("lines", pa.list_(pa.string()))])


def batch(*values: bytes | None) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * count,
            "partition": [3] * count,
            "offset": list(range(10, 10 + count)),
        }
    )


def avro(order: dict[str, Any]) -> bytes:
    written = BytesIO()
    schemaless_writer(written, ORDER, order)
    return written.getvalue()


def test_json_fields_by_name() -> None:
    how = value_format({"valueFormat": "json", "valueSchema": "id BIGINT, note STRING"}, ("orders",))
    assert how.spark_type() == "struct<id BIGINT, note STRING>"
    found = decoded(batch(b'{"id": 1, "more": [2]}', None, b'{"note": "x", "id": 2}'), how, ARROW)
    assert found.column("value").to_pylist() == [
        {"id": 1, "note": None, "lines": None},
        None,
        {"id": 2, "note": "x", "lines": None},
    ]
    assert found.schema.names == ["value", "topic", "partition", "offset"]


def test_avro_by_a_given_schema() -> None:
    how = value_format({"valueFormat": "avro", "valueSchema": json.dumps(ORDER)}, ("orders",))
    assert how.spark_type() == "struct<`id`: bigint, `note`: string, `lines`: array<string>>"
    order = {"id": 7, "note": None, "lines": ["a", "b"]}
    assert decoded(batch(avro(order)), how, ARROW).column("value").to_pylist() == [order]


@pytest.mark.parametrize("bad", [b"{", b'{"id": "text"}', b"\xff"])
def test_a_value_that_does_not_fit_is_named_or_null(bad: bytes) -> None:
    good = b'{"id": 1}'
    with pytest.raises(UnfitValue, match="The value at offset 11 of orders-3 does not fit the schema"):
        decoded(batch(good, bad, good), ValueFormat("json", "id BIGINT"), ARROW)
    lenient = ValueFormat("json", "id BIGINT", is_permissive=True)
    found = decoded(batch(good, bad, good), lenient, ARROW).column("value").to_pylist()
    assert [each and each["id"] for each in found] == [1, None, 1]


def test_types_of_avro() -> None:
    assert avro_type({"type": "map", "values": "double"}) == "map<string, double>"
    assert avro_type({"type": "long", "logicalType": "timestamp-millis"}) == "timestamp"
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert avro_type(["null", decimal]) == "decimal(9, 2)"
    assert avro_type({"type": "enum", "name": "E", "symbols": ["A"]}) == "string"
    with pytest.raises(InvalidOption, match="has none in Spark: read the topic as binary"):
        avro_type(["string", "long"])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"valueFormat": "xml"}, "valueFormat is 'xml'; it is one of binary, json, avro"),
        ({"valueSchema": "id INT"}, "need a valueFormat: json or avro"),
        ({"valueFormat": "json"}, "needs a valueSchema, such as 'id BIGINT, name STRING'"),
        ({"valueFormat": "avro"}, "needs a valueSchema, in Avro's JSON, or a schemaRegistryUrl"),
        (
            {"valueFormat": "avro", "schemaRegistryUrl": "http://127.0.0.1:1"},
            "The schema registry does not answer http://127.0.0.1:1/subjects/orders-value/versions/latest",
        ),
        ({"valueFormat": "json", "valueSchema": "id INT", "valueMode": "x"}, "it is FAILFAST or PERMISSIVE"),
    ],
)
def test_options_that_will_not_do(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        value_format(options, ("orders",))


def test_a_registry_that_is_away_makes_no_value_null() -> None:
    how = ValueFormat("avro", json.dumps(ORDER), "http://127.0.0.1:1", is_permissive=True)
    with pytest.raises(RegistryUnreachable, match=r"does not answer http://127\.0\.0\.1:1/schemas/ids/7"):
        decoded(batch(framed(7, avro({"id": 7, "note": None, "lines": []}))), how, ARROW)
