"""Records that were written with a schema registry, read in the console; and saved as Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastavro", reason="needs the extra ottla[avro]")
pytest.importorskip("grpc_tools", reason="needs the extra ottla[registry]")

import fastavro
from confluent_kafka import Producer
from console_site import ORDERS, Site, create
from registry.registry_process import RegistryProcess

from ottla.client.schema_registry import framed
from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import InProcessBroker

MONEY = {
    "type": "record",
    "name": "Money",
    "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "currency", "type": "string"},
    ],
}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "order", "type": "long"}, {"name": "paid", "type": "Money"}],
}
PROTO = """
syntax = "proto3";
message Unused { string x = 1; }
message Outer { message Order { int64 number = 1; string customer = 2; } }
"""


@pytest.fixture(scope="module")
def schema_site(broker: InProcessBroker) -> Iterator[tuple[Site, RegistryProcess]]:
    with RegistryProcess(broker.bootstrap_servers) as registry:
        settings = [
            ClusterSettings("local", broker.bootstrap_servers, registry=registry.url),
            ClusterSettings("unanswered", broker.bootstrap_servers, registry="http://127.0.0.1:1"),
        ]
        with console_served(settings) as address:
            yield Site(address).log_in(), registry


def register(registry: RegistryProcess, subject: str, **schema: object) -> int:
    status, answer = registry.call("POST", f"/subjects/{subject}/versions", schema)
    assert status == 200, answer
    return int(answer["id"])


def avro(schema_id: int, schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return framed(schema_id, out.getvalue())


def test_values_are_read_by_the_schemas_they_were_written_with(
    schema_site: tuple[Site, RegistryProcess], broker: InProcessBroker
) -> None:
    from decimal import Decimal

    site, registry = schema_site
    register(registry, "money", schema=json.dumps(MONEY))
    references = [{"name": "Money", "subject": "money", "version": 1}]
    payment = register(registry, "paid-value", schema=json.dumps(PAYMENT), references=references)
    proto = register(registry, "proto-value", schema=PROTO, schemaType="PROTOBUF")
    plain = register(registry, "json-value", schema='{"type": "object"}', schemaType="JSON")

    create(broker.bootstrap_servers, {"paid": 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    whole = {**PAYMENT, "fields": [PAYMENT["fields"][0], {"name": "paid", "type": MONEY}]}
    paid = {"order": 7, "paid": {"amount": Decimal("12.50"), "currency": "EUR"}}
    producer.produce("paid", avro(payment, whole, paid))
    # The second message of the file, and in it the first.
    producer.produce("paid", framed(proto, bytes([4, 2, 0]) + b"\x08\x2a\x12\x03ada"))
    producer.produce("paid", framed(plain, b'{"free": true}'))
    producer.produce("paid", framed(payment, b"\xff"))
    producer.produce("paid", framed(999_999, b"whatever"))
    producer.produce("paid", (7).to_bytes(8, "big"))
    assert producer.flush(60) == 0

    found = site.get("topics", "paid", "records", start="oldest")["records"]
    shown = [(record["value"]["as"], record["value"]["text"]) for record in found]
    assert shown[0] == ("avro", '{"order": 7, "paid": {"amount": "12.50", "currency": "EUR"}}')
    assert shown[1] == ("protobuf", '{"number": "42", "customer": "ada"}')
    assert shown[2] == ("json", '{"free": true}')
    # What cannot be read by its schema is shown as what else it may be, and who asks is told why.
    assert shown[3][0] == "hex" and shown[5] == ("int64", "7")
    why = site.get("topics", "paid", "records", start="oldest", value_as="schema")["records"]
    assert "does not fit" in why[3]["value"]["as"] and "999999" in why[4]["value"]["as"]
    matching = site.get("topics", "paid", "records", path="$.paid.currency = EUR")["records"]
    assert [record["offset"] for record in matching] == [0]

    silent = Site(site.address, "unanswered", site.headers)
    found = silent.get("topics", "paid", "records", start="oldest", value_as="schema")["records"]
    assert "does not answer" in found[0]["value"]["as"] and len(found) == 6


def test_records_are_saved_as_parquet(site: Site) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    from pyarrow import parquet

    connection = HTTPConnection(urlsplit(site.address).netloc, timeout=60)
    connection.request(
        "GET", f"{site.path('topics', 'orders', 'records', 'export')}?start=oldest&format=parquet"
    )
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert 'filename="orders.parquet"' in answer.headers["content-disposition"]
    table = parquet.read_table(pyarrow.BufferReader(data))
    assert table.num_rows == ORDERS
    first = table.to_pylist()[0]
    assert json.loads(first["value"])["total"] == json.loads(first["value"])["order"] * 10
    assert first["headers"][0]["name"] == "source" and first["timestamp"].year > 2000
