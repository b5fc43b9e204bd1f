"""Confluent's REST API: what is found, registered, refused and deleted, and with which codes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from registry_process import LOGIN, RegistryProcess, avro

from ottla.client.cluster import ClusterClient
from ottla.registry.topic import ensure_topic
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.in_process import InProcessBroker

pytestmark = pytest.mark.xdist_group("registry")


def code(answer: tuple[int, Any]) -> tuple[int, int]:
    status, body = answer
    return status, body["error_code"]


def test_versions_of_a_subject_come_and_go(registry: RegistryProcess) -> None:
    versions = "/subjects/walked/versions"
    status, first = registry.call("POST", versions, avro("id"))
    assert status == 200
    assert registry.call("POST", versions, avro("id")) == (200, first)
    assert code(registry.call("POST", versions, avro("id", "note"))) == (409, 409)
    _, second = registry.call("POST", versions, avro("id", "NOTE"))
    assert (first["version"], second["version"]) == (1, 2)
    assert registry.call("GET", versions) == (200, [1, 2])
    assert "walked" in registry.call("GET", "/subjects")[1]

    _, latest = registry.call("GET", f"{versions}/latest")
    assert latest["id"] == second["id"]
    assert registry.call("GET", f"{versions}/2/schema")[1] == json.loads(latest["schema"])
    _, by_id = registry.call("GET", f"/schemas/ids/{first['id']}")
    assert json.loads(by_id["schema"]) == json.loads(avro("id")["schema"])
    assert registry.call("GET", f"/schemas/ids/{first['id']}/versions") == (
        200,
        [{"subject": "walked", "version": 1}],
    )
    assert registry.call("GET", f"/schemas/guids/{by_id['guid']}")[1] == by_id
    found = registry.call("POST", "/subjects/walked", avro("id"))
    assert (found[0], found[1]["version"]) == (200, 1)

    assert code(registry.call("DELETE", f"{versions}/1?permanent=true")) == (404, 40407)
    assert registry.call("DELETE", f"{versions}/1") == (200, 1)
    assert code(registry.call("DELETE", f"{versions}/1")) == (404, 40406)
    assert registry.call("GET", f"{versions}?deleted=true") == (200, [1, 2])
    # What was written with it can still be read.
    assert registry.call("GET", f"/schemas/ids/{first['id']}")[0] == 200
    assert registry.call("DELETE", f"{versions}/1?permanent=true") == (200, 1)
    assert code(registry.call("GET", f"/schemas/ids/{first['id']}")) == (404, 40403)

    assert code(registry.call("DELETE", "/subjects/walked?permanent=true")) == (404, 40405)
    assert registry.call("DELETE", "/subjects/walked") == (200, [2])
    assert code(registry.call("DELETE", "/subjects/walked")) == (404, 40404)
    assert registry.call("DELETE", "/subjects/walked?permanent=true") == (200, [2])
    assert code(registry.call("GET", versions)) == (404, 40401)


def test_one_schema_has_one_id_in_all_subjects_and_no_id_is_given_again(registry: RegistryProcess) -> None:
    _, here = registry.call("POST", "/subjects/here/versions", avro("a", name="Same"))
    _, there = registry.call("POST", "/subjects/there/versions", avro("a", name="Same"))
    assert here["id"] == there["id"]
    assert registry.call("GET", f"/schemas/ids/{here['id']}/subjects") == (200, ["here", "there"])
    for permanent in ("", "?permanent=true"):
        for subject in ("here", "there"):
            registry.call("DELETE", f"/subjects/{subject}{permanent}")
    _, later = registry.call("POST", "/subjects/here/versions", avro("b", name="Other"))
    assert later["id"] > here["id"]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/subjects/nobody/versions", None, (404, 40401)),
        ("GET", "/subjects/nobody/versions/1", None, (404, 40401)),
        ("GET", "/subjects/errors/versions/9", None, (404, 40402)),
        ("GET", "/subjects/errors/versions/zero", None, (422, 42202)),
        ("GET", "/subjects/errors/versions/0", None, (422, 42202)),
        ("GET", "/schemas/ids/99999", None, (404, 40403)),
        ("POST", "/subjects/errors", avro("unknown"), (404, 40403)),
        ("POST", "/subjects/nobody", avro("unknown"), (404, 40401)),
        ("POST", "/subjects/errors/versions", {"schema": '{"type":'}, (422, 42201)),
        ("POST", "/subjects/errors/versions", {"schema": "{}", "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/errors/versions", {"schema": ""}, (422, 42201)),
        ("POST", "/subjects/errors/versions", {**avro("a"), "id": 7}, (422, 42205)),
        ("POST", "/subjects/__GLOBAL/versions", avro("a"), (422, 42208)),
        ("PUT", "/config", {"compatibility": "SOMEWHAT"}, (422, 42203)),
        ("PUT", "/mode", {"mode": "SOMEHOW"}, (422, 42204)),
        ("GET", "/config/errors", None, (404, 40408)),
        ("GET", "/mode/errors", None, (404, 40409)),
        ("POST", "/compatibility/subjects/errors/versions/9", avro("a"), (404, 40402)),
        ("GET", "/nothing", None, (404, 404)),
        ("PATCH", "/subjects", None, (405, 405)),
    ],
)
def test_refusals_have_confluents_codes(
    registry: RegistryProcess, method: str, path: str, body: Any, expected: tuple[int, int]
) -> None:
    assert registry.call("POST", "/subjects/errors/versions", avro("id"))[0] == 200
    assert code(registry.call(method, path, body)) == expected


def test_what_is_too_large_or_too_deep_is_refused_and_harms_nobody(registry: RegistryProcess) -> None:
    documented = {"schemaType": "JSON", "schema": json.dumps({"description": "x" * 2_000_000})}
    assert code(registry.call("POST", "/subjects/large/versions", documented)) == (422, 42209)
    larger = {"schemaType": "JSON", "schema": "x" * 17_000_000}
    assert code(registry.call("POST", "/subjects/large/versions", larger)) == (422, 42209)
    for kind in ("AVRO", "JSON"):
        deep = {"schemaType": kind, "schema": '{"items":' * 100_000 + "{}" + "}" * 100_000}
        assert code(registry.call("POST", "/subjects/large/versions", deep)) == (422, 42201)
    # By the same leader as before: nothing was in doubt.
    assert registry.call("POST", "/subjects/large/versions", avro("a", name="Small"))[0] == 200
    assert "stops writing" not in registry.log


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/subjects/odd/versions", {**avro("a"), "metadata": ["x"]}, (422, 422)),
        ("POST", "/subjects/odd/versions", {**avro("a"), "metadata": {"properties": {"a": 1}}}, (422, 422)),
        ("POST", "/subjects/odd", {**avro("a"), "ruleSet": "x"}, (422, 422)),
        ("POST", "/subjects/odd/versions", {**avro("a"), "id": 1 << 31}, (400, 400)),
        ("PUT", "/config/odd", {"alias": 5}, (400, 400)),
        ("PUT", "/config/odd", {"compatibilityGroup": ["x"]}, (400, 400)),
        ("PUT", "/config/odd", {"compatibility": ["FULL"]}, (400, 400)),
    ],
)
def test_what_is_of_another_type_than_it_should_be_is_refused_and_not_kept(
    registry: RegistryProcess, method: str, path: str, body: Any, expected: tuple[int, int]
) -> None:
    assert code(registry.call(method, path, body)) == expected
    nothing = {**avro("a"), "metadata": {"properties": None, "tags": {}}, "ruleSet": None}
    assert registry.call("POST", "/subjects/odd/versions", nothing)[0] == 200
    assert registry.call("GET", "/subjects/odd/metadata?key=a&value=1")[0] == 404
    assert code(registry.call("GET", "/config/odd")) == (404, 40408)


@pytest.mark.parametrize("version", [1 << 31, -2, 1.5, True, [], "one"])
def test_a_reference_needs_a_version_that_there_can_be(registry: RegistryProcess, version: Any) -> None:
    body = {**avro("a"), "references": [{"name": "r", "subject": "base", "version": version}]}
    assert registry.call("POST", "/subjects/referring/versions", body)[0] == 422


def test_no_record_in_the_topic_ends_a_registry(cluster: InProcessBroker, registry: RegistryProcess) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    key = '{"keytype":"SCHEMA","subject":"strange","version":1,"magic":1}'
    for value in ("[" * 100_000, '{"subject":"strange","version":1e400,"id":1,"schema":"\\"int\\""}'):
        producer.produce("_schemas", value, key)
    assert producer.flush(30) == 0
    assert registry.call("POST", "/subjects/after-strange/versions", avro("a"))[0] == 200
    assert code(registry.call("GET", "/subjects/strange/versions")) == (404, 40401)


def test_settings_of_a_subject_go_before_those_of_all(registry: RegistryProcess) -> None:
    assert registry.call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert registry.call("POST", "/subjects/loose/versions", avro("a"))[0] == 200
    ask = "/compatibility/subjects/loose/versions?verbose=true"
    _, told = registry.call("POST", ask, avro("b"))
    assert not told["is_compatible"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in told["messages"][0]
    assert registry.call("PUT", "/config/loose", {"compatibility": "none"}) == (
        200,
        {"compatibility": "NONE"},
    )
    assert registry.call("POST", ask, avro("b")) == (200, {"is_compatible": True, "messages": []})
    assert registry.call("GET", "/config/loose") == (200, {"compatibilityLevel": "NONE"})
    assert registry.call("DELETE", "/config/loose") == (200, {"compatibilityLevel": "NONE"})
    everywhere = registry.call("GET", "/config/loose?defaultToGlobal=true")
    assert everywhere == (200, {"compatibilityLevel": "BACKWARD"})


def test_modes_keep_subjects_as_they_are_or_let_them_be_imported(registry: RegistryProcess) -> None:
    assert registry.call("PUT", "/mode/kept", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert code(registry.call("POST", "/subjects/kept/versions", avro("a"))) == (422, 42205)
    assert registry.call("PUT", "/mode/kept", {"mode": "IMPORT"})[0] == 200
    imported = {**avro("a", name="Imported"), "id": 5000, "version": 3}
    _, told = registry.call("POST", "/subjects/kept/versions", imported)
    assert (told["id"], told["version"]) == (5000, 3)
    assert code(registry.call("POST", "/subjects/kept/versions", {**avro("b"), "id": 5000})) == (422, 42205)
    assert registry.call("DELETE", "/mode/kept") == (200, {"mode": "IMPORT"})
    _, next_one = registry.call("POST", "/subjects/kept/versions", avro("a", "B", name="Imported"))
    assert (next_one["id"], next_one["version"]) == (5001, 4)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_schema_that_others_refer_to_stays(registry: RegistryProcess, kind: str) -> None:
    base, user = f"{kind}-base", f"{kind}-user"
    name, texts = {
        "AVRO": (
            "shop.Id",
            (
                '{"type":"fixed","name":"shop.Id","size":4}',
                '{"type":"record","name":"Part","fields":[{"name":"id","type":"shop.Id"}]}',
            ),
        ),
        "JSON": ("id.json", ('{"type":"string"}', '{"properties":{"id":{"$ref":"id.json"}}}')),
        "PROTOBUF": (
            "id.proto",
            (
                'syntax = "proto3"; package shop; message Id { string id = 1; }',
                'syntax = "proto3"; import "id.proto"; message Part { shop.Id id = 1; }',
            ),
        ),
    }[kind]
    alone = {"schemaType": kind, "schema": texts[1]}
    assert code(registry.call("POST", f"/subjects/{user}/versions", alone)) == (422, 42201)
    assert (
        registry.call("POST", f"/subjects/{base}/versions", {"schemaType": kind, "schema": texts[0]})[0]
        == 200
    )
    referring = alone | {"references": [{"name": name, "subject": base, "version": 1}]}
    status, told = registry.call("POST", f"/subjects/{user}/versions", referring)
    assert status == 200, told
    assert registry.call("GET", f"/subjects/{base}/versions/1/referencedby") == (200, [told["id"]])
    assert code(registry.call("DELETE", f"/subjects/{base}/versions/1")) == (422, 42206)
    assert code(registry.call("DELETE", f"/subjects/{base}")) == (422, 42206)
    assert registry.call("DELETE", f"/subjects/{user}") == (200, [1])
    assert registry.call("DELETE", f"/subjects/{base}") == (200, [1])


def test_equal_schemas_are_found_however_they_are_written(registry: RegistryProcess) -> None:
    spaced = {"schemaType": "JSON", "schema": '{ "type" : "object",  "title": "x" }'}
    _, told = registry.call("POST", "/subjects/same/versions", spaced)
    tight = {"schemaType": "JSON", "schema": '{"type":"object","title":"x"}'}
    assert registry.call("POST", "/subjects/same", tight)[1]["id"] == told["id"]
    turned = {"schemaType": "JSON", "schema": '{"title":"x","type":"object"}'}
    assert code(registry.call("POST", "/subjects/same", turned)) == (404, 40403)
    # In order of their names, there is one way to write it.
    _, normal = registry.call("POST", "/subjects/normal/versions?normalize=true", tight)
    assert registry.call("POST", "/subjects/normal?normalize=true", turned)[1]["id"] == normal["id"]


def test_contexts_keep_subjects_of_one_name_apart(registry: RegistryProcess) -> None:
    _, here = registry.call("POST", "/subjects/shared/versions", avro("a", name="Here"))
    path = "/contexts/.other/subjects/shared%2Fname/versions"
    _, there = registry.call("POST", path, avro("a", name="There"))
    assert there["id"] == 1
    assert registry.call("GET", "/contexts") == (200, [".", ".other"])
    assert registry.call("GET", "/contexts/.other/subjects") == (200, [":.other:shared/name"])
    _, found = registry.call("GET", "/subjects/%3A.other%3Ashared%2Fname/versions/1")
    assert "There" in found["schema"]
    assert "There" in registry.call("GET", "/contexts/.other/schemas/ids/1")[1]["schema"]
    assert "Here" in registry.call("GET", f"/schemas/ids/{here['id']}")[1]["schema"]


def test_the_topic_has_confluents_format_and_a_restart_finds_all_in_it(cluster: InProcessBroker) -> None:
    options = ("--topic", "_kept", "--group", "kept")
    with RegistryProcess(cluster.bootstrap_servers, *options) as before:
        before.call("POST", "/subjects/s/versions", avro("a"))
        before.call("POST", "/subjects/s/versions", avro("a", "B"))
        before.call("PUT", "/config", {"compatibility": "FULL"})
        before.call("PUT", "/config/s", {"compatibility": "NONE"})
        before.call("DELETE", "/subjects/s/versions/1")
        before.call("POST", "/subjects/gone/versions", avro("c"))
        before.call("DELETE", "/subjects/gone")
        assert before.stop() == 0
    # A key out of order would be another record to log compaction.
    assert _records(cluster.bootstrap_servers, "_kept", 7) == [
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', 1),
        ('{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}', 2),
        ('{"keytype":"CONFIG","magic":0}', None),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', None),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', 1),
        ('{"keytype":"SCHEMA","subject":"gone","version":1,"magic":1}', 3),
        ('{"keytype":"DELETE_SUBJECT","subject":"gone","magic":0}', None),
    ]
    secret = f'{LOGIN} username="registry" password="secret";'
    login = ["sasl.mechanism=PLAIN", "security.protocol=SASL_PLAINTEXT", f"sasl.jaas.config={secret}"]
    closed = [option for setting in login for option in ("--command-property", setting)]
    with RegistryProcess(f"127.0.0.1:{cluster.ports['SASL']}", *options, *closed) as after:
        assert after.call("GET", "/subjects/s/versions") == (200, [2])
        assert after.call("GET", "/subjects?deletedOnly=true") == (200, ["gone"])
        assert after.call("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
        assert after.call("GET", "/config") == (200, {"compatibilityLevel": "FULL"})
        assert after.call("POST", "/subjects/new/versions", avro("d"))[1]["id"] == 4


@pytest.mark.parametrize(
    ("topic", "partitions", "complaint"),
    [("_deleting", 1, "cleanup.policy=delete"), ("_wide", 2, "2 partitions")],
)
def test_a_topic_that_would_lose_schemas_is_not_used(
    cluster: InProcessBroker, topic: str, partitions: int, complaint: str
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(60)

    async def ensure() -> None:
        async with ClusterClient(AsyncioNetwork(), cluster.bootstrap_servers) as client:
            await ensure_topic(client, topic, 1)

    with pytest.raises(ValueError, match=complaint):
        asyncio.run(ensure())


def _records(bootstrap: str, topic: str, count: int) -> list[tuple[str, int | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[tuple[str, int | None]] = []
    try:
        while len(found) < count:
            message = consumer.poll(1)
            if message is not None and not message.error():
                found.append((message.key().decode(), json.loads(message.value()).get("id")))
    finally:
        consumer.close()
    return found


def test_numbers_of_thousands_of_digits_and_halves_of_characters_are_refused(
    registry: RegistryProcess,
) -> None:
    digits = "9" * 5000
    assert code(registry.call("GET", f"/schemas/ids/{digits}"))[0] in {404, 422}
    assert code(registry.call("GET", f"/subjects/huge/versions/{digits}"))[0] in {404, 422}
    assert registry.call("GET", f"/schemas?limit={digits}&offset={digits}")[0] == 200
    half = {"schema": '{"type": "record", "name": "R\ud800", "fields": []}'}
    assert code(registry.call("POST", "/subjects/half/versions", half)) == (400, 400)
    inner = {"schema": '{"type": "record", "name": "R", "doc": "\\ud800", "fields": []}'}
    assert registry.call("POST", "/subjects/half/versions", inner)[0] in {200, 422}
    assert registry.call("GET", "/subjects")[0] == 200
