"""Converters of Connect with a registry: what they write they read, and so do Confluent's clients."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from registry_process import RegistryProcess

from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    Struct,
    array_of,
    decimal_of,
    map_of,
    plain,
    struct_of,
)
from ottla.connect.errors import DataError, RetriableError
from ottla.connect.plugins import Kind as PluginKind
from ottla.connect.plugins import installed

INNER = struct_of(("x", INT32), ("y", STRING.but(optional=True)), name="example.Inner")
EVERYTHING = struct_of(
    ("id", INT64),
    ("small", Schema(Kind.INT8)),
    ("share", FLOAT64),
    ("yes", BOOLEAN),
    ("raw", BYTES),
    ("name", STRING.but(optional=True)),
    ("missing", INT32.but(optional=True)),
    ("price", decimal_of(2)),
    ("day", DATE_SCHEMA),
    ("hour", TIME_SCHEMA),
    ("at", TIMESTAMP_SCHEMA),
    ("tags", array_of(STRING)),
    ("counts", map_of(STRING, INT64)),
    ("inner", INNER.but(optional=True)),
    name="example.Everything",
)
VALUE = {
    "id": 1 << 40,
    "small": -7,
    "share": 0.25,
    "yes": True,
    "raw": b"\x00\xff",
    "name": "Ada",
    "missing": None,
    "price": Decimal("12.34"),
    "day": date(2024, 2, 29),
    "hour": time(12, 34, 56, 789000),
    "at": datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=UTC),
    "tags": ["a", "b"],
    "counts": {"a": 1},
    "inner": Struct(INNER, {"x": 1, "y": None}),
}


def converter(name: str, url: str, **more: str) -> Any:
    found = installed().find(name, PluginKind.CONVERTER)
    assert found is not None
    made: Any = found.load()
    return made({"converter.type": "value", "schema.registry.url": url, **more})


@pytest.mark.parametrize("name", ["io.confluent.connect.avro.AvroConverter", "JsonSchemaConverter"])
def test_what_is_written_is_read_with_its_schema(registry: RegistryProcess, name: str) -> None:
    made = converter(name, registry.url)
    topic = f"everything-{name.rpartition('.')[2]}"
    data = made.to_bytes(topic, EVERYTHING, Struct(EVERYTHING, VALUE))
    assert data[0] == 0
    found = converter(name, registry.url).from_bytes(topic, data)
    assert plain(found.value) == plain(Struct(EVERYTHING, VALUE))
    kinds = [
        (each.name, each.schema.kind, each.schema.optional, each.schema.name) for each in found.schema.fields
    ]
    assert kinds == [
        (each.name, each.schema.kind, each.schema.optional, each.schema.name) for each in EVERYTHING.fields
    ]
    assert found.schema.name == "example.Everything"
    assert registry.call("GET", f"/subjects/{topic}-value/versions") == (200, [1])
    assert made.to_bytes(topic, EVERYTHING.but(optional=True), None) is None
    assert made.from_bytes("t", made.to_bytes(f"{topic}-text", None, "text")).value == "text"
    with pytest.raises(DataError, match="was not written with a schema registry"):
        made.from_bytes(topic, b"{}")
    with pytest.raises(DataError, match="dict without a schema"):
        made.to_bytes(topic, None, {"a": 1})


def test_confluents_clients_read_it_and_are_read(registry: RegistryProcess) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    row = struct_of(("n", INT64), ("who", STRING.but(optional=True)), name="example.Row")
    value = Struct(row, {"n": 1, "who": None})
    context = SerializationContext("mixed", MessageField.VALUE)
    avro = converter("AvroConverter", registry.url).to_bytes("mixed", row, value)
    assert AvroDeserializer(client)(avro, context) == {"n": 1, "who": None}
    as_json = converter("JsonSchemaConverter", registry.url).to_bytes("mixed-json", row, value)
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(as_json, SerializationContext("mixed-json", MessageField.VALUE)) == {"n": 1, "who": None}
    theirs = {
        "type": "record",
        "name": "Choice",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
            {"name": "one", "type": ["null", "int", "string"], "default": None},
            {"name": "same", "type": "Colour"},
        ],
    }
    write = AvroSerializer(client, json.dumps(theirs))
    data = write({"kind": "RED", "one": "x", "same": "BLUE"}, SerializationContext("c", MessageField.VALUE))
    found = converter("avro", registry.url).from_bytes("c", data).value
    assert (found["kind"], found["same"], found["one"].as_dict()) == (
        "RED",
        "BLUE",
        {"int": None, "string": "x"},
    )


def test_protobuf_is_written_and_read_and_by_confluents_clients(registry: RegistryProcess) -> None:
    stamp = datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=UTC)
    inner = struct_of(("x", INT32), ("y", STRING.but(optional=True)), name="Inner")
    row = struct_of(
        ("id", INT64),
        ("small", Schema(Kind.INT8)),
        ("name", STRING.but(optional=True)),
        ("raw", BYTES),
        ("yes", BOOLEAN),
        ("at", TIMESTAMP_SCHEMA.but(optional=True)),
        ("tags", array_of(STRING)),
        ("counts", map_of(STRING, INT64)),
        ("inner", inner.but(optional=True)),
        ("inners", array_of(inner)),
        name="example.Row",
    )
    value: dict[str, Any] = {"id": 1 << 40, "small": -7, "name": None, "raw": b"\0", "yes": True, "at": stamp}
    value |= {"tags": ["a", "b"], "counts": {"a": 1}, "inner": None}
    value["inners"] = [Struct(inner, {"x": 1, "y": "z"})]
    made = converter("io.confluent.connect.protobuf.ProtobufConverter", registry.url)
    data = made.to_bytes("converted-proto", row, Struct(row, value))
    found = converter("ProtobufConverter", registry.url).from_bytes("converted-proto", data)
    assert plain(found.value) == plain(Struct(row, value))
    assert found.schema.name == "example.Row"
    kinds = {each.name: (each.schema.kind, each.schema.optional) for each in found.schema.fields}
    assert kinds["name"] == (Kind.STRING, True)
    assert kinds["small"] == (Kind.INT32, False)
    # A message of Confluent's, the second one of its file.
    parsed = descriptor_pb2.FileDescriptorProto(name="two.proto", syntax="proto3")
    for name in ("First", "Second"):
        field = parsed.message_type.add(name=name).field.add(name="n", number=1, label=1, type=3)
        assert field.number == 1
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(parsed.SerializeToString())
    second = message_factory.GetMessageClass(pool.FindMessageTypeByName("Second"))
    client = SchemaRegistryClient({"url": registry.url})
    write = ProtobufSerializer(second, client, {"use.deprecated.format": False})
    theirs = write(second(n=5), SerializationContext("two", MessageField.VALUE))
    read = made.from_bytes("two", theirs)
    assert (read.schema.name, read.value.as_dict()) == ("Second", {"n": 5})
    with pytest.raises(DataError, match="HoistField"):
        made.to_bytes("proto-text", None, "text")
    with pytest.raises(DataError, match="has no form in Protobuf"):
        price = struct_of(("price", decimal_of(2)))
        made.to_bytes("proto-price", price, Struct(price, {"price": Decimal("1.00")}))


def test_a_schema_that_is_refused_and_a_registry_that_is_away_are_told_apart(
    registry: RegistryProcess,
) -> None:
    made = converter("AvroConverter", registry.url, **{"auto.register.schemas": "false"})
    with pytest.raises(DataError, match="refuses the schema of nowhere-value"):
        made.to_bytes("nowhere", INT64, 1)
    away = converter("AvroConverter", "http://127.0.0.1:1")
    with pytest.raises(RetriableError, match="cannot be asked for"):
        away.to_bytes("away", INT64, 1)
