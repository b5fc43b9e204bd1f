"""Confluent's serializers and our serdes: what one writes the other reads, in all three formats."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from registry_process import RegistryProcess

from ottla.client.schema_registry import RegistryUnreachable
from ottla.streams import Consumed, Produced, RecordError, SchemaRegistry, Serde, SerdeError, StreamsBuilder
from ottla.streams.testing import TopologyTestDriver
from ottla.testing.in_process import InProcessBroker

pytestmark = pytest.mark.xdist_group("registry")

AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"}, {"name": "cents", "type": "long"}]}"""
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}}, "required": ["id"]}"""


@dataclass
class Order:
    id: str
    cents: int = 0


@dataclass
class OrderOn:
    id: str
    on: date


def _messages() -> tuple[type, type]:
    """Classes as protoc makes them: an order, in a file that imports a standard type and one of its own."""
    pool = descriptor_pool.Default()
    money = FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    cents = money.message_type.add(name="Money").field.add(name="cents", number=1)
    cents.type, cents.label = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.LABEL_OPTIONAL
    order = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.append(money.name)
    message = order.message_type.add(name="Order")
    name = message.field.add(name="order_id", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
    name.type = FieldDescriptorProto.TYPE_STRING
    price = message.field.add(name="price", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
    price.type, price.type_name = FieldDescriptorProto.TYPE_MESSAGE, ".shop.Money"
    for file in (money, order):
        pool.AddSerializedFile(file.SerializeToString())
    found = (pool.FindMessageTypeByName(name) for name in ("shop.Order", "shop.Money"))
    made, price_type = (message_factory.GetMessageClass(descriptor) for descriptor in found)
    return made, price_type


ProtoOrder, Money = _messages()


@pytest.fixture
def client(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def through(cluster: InProcessBroker, topic: str, data: bytes) -> bytes:
    """By way of the broker, as whoever reads it would get it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, data)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1)
            if message is not None and not message.error():
                value: bytes = message.value()
                return value
    finally:
        consumer.close()


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_both_ways(cluster: InProcessBroker, registry: RegistryProcess, client: Any) -> None:
    order = {"id": "a", "cents": 250}
    theirs = AvroSerializer(client, AVRO)(order, context("avro"))
    serde = SchemaRegistry(registry.url).avro(AVRO, topic="avro", kind=Order)
    assert serde.deserialize(through(cluster, "avro", theirs)) == Order("a", 250)
    assert serde.serialize(Order("a", 250)) == theirs
    assert AvroDeserializer(client)(serde.serialize(Order("b")), context("avro")) == {"id": "b", "cents": 0}


def test_avro_as_columns_of_spark(registry: RegistryProcess, client: Any) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs the extra ottla[spark]")
    from ottla.spark.values import decoded, value_format

    theirs = AvroSerializer(client, AVRO)({"id": "a", "cents": 250}, context("columns"))
    # The first of them is away.
    registries = f"http://127.0.0.1:1, {registry.url}/"
    how = value_format({"valueFormat": "avro", "schemaRegistryUrl": registries}, ("columns",))
    assert how.spark_type() == "struct<`id`: string, `cents`: bigint>"
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [theirs, None, b"other"],
            "topic": ["columns"] * 3,
            "partition": [0] * 3,
            "offset": [0, 1, 2],
        }
    )
    arrow = pa.struct([("id", pa.string()), ("cents", pa.int64())])
    found = decoded(batch.slice(0, 2), how, arrow).column("value").to_pylist()
    assert found == [{"id": "a", "cents": 250}, None]
    with pytest.raises(Exception, match="The value at offset 2 of columns-0 does not fit the schema"):
        decoded(batch, how, arrow)


def test_json_schema_both_ways(cluster: InProcessBroker, registry: RegistryProcess, client: Any) -> None:
    theirs = JSONSerializer(JSON, client)({"id": "a", "cents": 250}, context("json"))
    serde = SchemaRegistry(registry.url).json_schema(JSON, topic="json", kind=Order)
    assert serde.deserialize(through(cluster, "json", theirs)) == Order("a", 250)
    ours = serde.serialize(Order("b"))
    assert JSONDeserializer(JSON, schema_registry_client=client)(ours, context("json")) == {
        "id": "b",
        "cents": 0,
    }
    with pytest.raises(SerdeError, match="cents"):
        SchemaRegistry(registry.url).json_schema(JSON, topic="json").serialize({"id": "a", "cents": "many"})


def test_protobuf_both_ways_with_an_import(
    cluster: InProcessBroker, registry: RegistryProcess, client: Any
) -> None:
    order = ProtoOrder(order_id="a", price=Money(cents=250))
    theirs = ProtobufSerializer(ProtoOrder, client)(order, context("proto"))
    serde = SchemaRegistry(registry.url).protobuf(ProtoOrder, topic="proto")
    assert serde.deserialize(through(cluster, "proto", theirs)) == order
    assert serde.serialize(order) == theirs
    ours = ProtobufDeserializer(ProtoOrder, {"use.deprecated.format": False}, client)(
        theirs, context("proto")
    )
    assert ours == order
    # What a client in another language gets to see is text.
    _, found = registry.call("GET", "/subjects/proto-value/versions/1")
    assert "message Order {" in found["schema"]
    assert [reference["subject"] for reference in found["references"]] == ["shop/money.proto"]


def test_their_client_finds_its_way(registry: RegistryProcess, client: Any) -> None:
    schema = Schema(AVRO, "AVRO")
    number = client.register_schema("walk-value", schema)
    assert client.get_schema(number).schema_str == client.get_latest_version("walk-value").schema.schema_str
    assert client.lookup_schema("walk-value", schema).version == 1
    assert client.get_versions("walk-value") == [1]
    assert "walk-value" in client.get_subjects()
    assert client.set_compatibility("walk-value", "FULL")["compatibility"] == "FULL"
    assert client.get_compatibility("walk-value") == "FULL"
    assert client.test_compatibility("walk-value", schema)
    assert client.delete_subject("walk-value") == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        # Another one, that remembers nothing.
        SchemaRegistryClient({"url": registry.url}).get_latest_version("walk-value")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


def test_a_reader_with_an_older_class_ignores_what_is_new(registry: RegistryProcess) -> None:
    later = AVRO.replace("]}", ', {"name": "note", "type": "string", "default": ""}]}')
    ours = SchemaRegistry(registry.url)
    newer = ours.avro(later, topic="grown")
    data = newer.serialize({"id": "a", "cents": 1, "note": "new"})
    assert ours.avro(topic="grown", kind=Order).deserialize(data) == Order("a", 1)
    with pytest.raises(SerdeError, match="unknown field 'note'"):
        ours.avro(topic="grown", kind=Order, strict=True).deserialize(data)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "named-key"),
        ("RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "named-shop.Order"),
    ],
)
def test_subjects_are_named_as_asked(registry: RegistryProcess, strategy: Any, subject: str) -> None:
    serde = SchemaRegistry(registry.url, subject_name_strategy=strategy).avro(
        AVRO, topic="named", is_key=True
    )
    serde.serialize({"id": "a", "cents": 1})
    assert subject in registry.call("GET", "/subjects")[1]


def test_what_is_not_registered_is_not_written_unless_it_may_be(registry: RegistryProcess) -> None:
    serde = SchemaRegistry(registry.url, auto_register=False).avro(AVRO, topic="strangers")
    with pytest.raises(SerdeError, match="strangers-value"):
        serde.serialize({"id": "a", "cents": 1})
    with pytest.raises(SerdeError, match="is not Avro"):
        serde.deserialize(b"no frame")
    with pytest.raises(SerdeError, match="no schema was given"):
        SchemaRegistry(registry.url).avro(topic="strangers").serialize({"id": "a"})
    with pytest.raises(SerdeError, match="there is no AnyStrategy"):
        SchemaRegistry(registry.url, subject_name_strategy="AnyStrategy").avro(topic="t")  # type: ignore[arg-type]


def test_a_topology_reads_one_format_and_writes_another(registry: RegistryProcess, client: Any) -> None:
    ours = SchemaRegistry(registry.url)
    orders = ours.avro(AVRO, topic="bought", kind=Order)
    messages = ours.protobuf(ProtoOrder, topic="sold")
    builder = StreamsBuilder()
    builder.stream("bought", Consumed.with_(str, orders)).map_values(
        lambda order: ProtoOrder(order_id=order.id, price=Money(cents=2 * order.cents))
    ).to("sold", Produced.with_(str, messages))
    theirs = AvroSerializer(client, AVRO)({"id": "a", "cents": 5}, context("bought"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("bought").pipe_bytes(b"key", theirs)
        written = driver.create_output_topic("sold", str, bytes).read_value()
    deserialize = ProtobufDeserializer(ProtoOrder, {"use.deprecated.format": False}, client)
    assert deserialize(written, context("sold")) == ProtoOrder(order_id="a", price=Money(cents=10))


def test_a_serde_travels_and_is_the_same_when_made_again(registry: RegistryProcess) -> None:
    from pyspark import cloudpickle

    def made() -> Serde:
        return SchemaRegistry(registry.url).json_schema(topic="dates", kind=OrderOn)

    assert made() is made()
    writing = SchemaRegistry(registry.url).json_schema(
        '{"title": "OrderOn", "type": "object"}', topic="dates", kind=OrderOn
    )
    assert writing.serialize(OrderOn("a", date(2026, 1, 31))) is not None
    copy = pickle.loads(cloudpickle.dumps(writing))
    data = copy.serialize(OrderOn("a", date(2026, 1, 31)))
    assert made().deserialize(data) == OrderOn("a", date(2026, 1, 31))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confluent's client waits for seconds before it gives up."""
    monkeypatch.setattr(
        "confluent_kafka.schema_registry._sync.schema_registry_client.full_jitter", lambda *given: 0
    )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("on_error", ["skip", "dead-letter", "fail"])
def test_a_registry_that_is_away_is_no_fault_of_the_record(cluster: InProcessBroker, on_error: str) -> None:
    with RegistryProcess(cluster.bootstrap_servers) as registry:
        orders = SchemaRegistry(registry.url).avro(AVRO, topic=f"away-{on_error}", kind=Order)
        unknown = b"\0\0\0\x7f\xff" + (orders.serialize(Order("a", 5)) or b"")[5:]
        written = SchemaRegistry(registry.url).avro(AVRO.replace("Order", "Other"), topic="away", kind=Order)
        data = written.serialize(Order("a", 5))
        builder = StreamsBuilder()
        builder.stream("in", Consumed.with_(str, orders)).to("out", Produced.with_(str, orders))
        dead = "dead" if on_error == "dead-letter" else None
        with TopologyTestDriver(builder.build(), on_error=on_error, dead_letter_topic=dead) as driver:
            # An id that the registry does not know says something of the record.
            if on_error == "fail":
                with pytest.raises(RecordError, match="404"):
                    driver.create_input_topic("in").pipe_bytes(b"key", unknown)
            else:
                driver.create_input_topic("in").pipe_bytes(b"key", unknown)
            registry.kill()
            with pytest.raises(RegistryUnreachable, match=f"{registry.url} cannot be reached"):
                driver.create_input_topic("in").pipe_bytes(b"key", data)
