"""The console's API and pages over HTTP, against a real broker."""

from __future__ import annotations

import json
import logging
import threading
import time
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from console_site import ORDERS, Site, commit, create
from share_members import check_a_share_group_is_shown_set_and_deleted
from transactions_seen import check_outcomes_are_told

from ottla.console.api.all import FAMILIES
from ottla.console.asked import fields_of
from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import InProcessBroker

EVIL = "<script>alert(1)</script>"


def test_the_overview_tells_of_brokers_quorum_and_trouble(site: Site) -> None:
    found = site.get("overview")
    assert [broker["id"] for broker in found["brokers"]] == [found["controller"]]
    assert found["quorum"]["leader"] == found["controller"]
    assert found["offlinePartitions"] == found["underReplicatedPartitions"] == 0
    assert found["features"]["metadata.version"] > 0
    assert found["brokers"][0]["sizeBytes"] > 0
    assert "Broker 1" in site.page()
    assert "log.dirs" in site.page("brokers", str(found["controller"]))


def test_topics_are_created_found_sorted_changed_and_deleted(site: Site) -> None:
    for name, partitions in (("alpha.one", 1), ("alpha.two", 4)):
        site.change("POST", "topics", name=name, partitions=partitions, settings={"retention.ms": "3600000"})
    found = site.get("topics", q="ALPHA", sort="partitions", down="true")
    assert [(topic["name"], topic["partitions"]) for topic in found["topics"]] == [
        ("alpha.two", 4),
        ("alpha.one", 1),
    ]
    assert site.get("topics", q="alpha", limit=1, page=2)["topics"][0]["name"] == "alpha.two"
    status, text = site.refused("POST", "topics", name="alpha.one")
    assert status == 409 and "alpha.one" in text

    settings = {each["name"]: each for each in site.get("topics", "alpha.one", "settings")["settings"]}
    assert settings["retention.ms"]["value"] == "3600000"
    assert settings["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert settings["cleanup.policy"]["isDefault"] and settings["cleanup.policy"]["doc"]
    site.change(
        "PATCH", "topics", "alpha.one", "settings", set={"cleanup.policy": "compact"}, delete=["retention.ms"]
    )
    settings = {each["name"]: each for each in site.get("topics", "alpha.one", "settings")["settings"]}
    assert settings["cleanup.policy"]["value"] == "compact" and settings["retention.ms"]["isDefault"]

    site.change("POST", "topics", "alpha.one", "partitions", count=3)
    assert len(site.get("topics", "alpha.one")["partitions"]) == 3
    assert site.refused("DELETE", "topics", "alpha.one", confirm="alpha")[0] == 400
    for name in ("alpha.one", "alpha.two"):
        site.change("DELETE", "topics", name, confirm=name)
    assert site.get("topics", q="alpha")["total"] == 0
    assert site.refused("PATCH", "topics", "alpha.one", "settings", set={"retention.ms": "1"})[0] == 404


def test_a_topic_is_emptied(site: Site) -> None:
    site.change("POST", "topics", name="full", partitions=1)
    site.change("POST", "topics", "full", "records", value="x", repeat=20)
    assert site.get("topics", "full")["partitions"][0]["endOffset"] == 20
    site.change("POST", "topics", "full", "empty", confirm="full")
    assert site.get("topics", "full")["partitions"][0]["startOffset"] == 20


def test_what_is_written_often_goes_in_several_batches(site: Site) -> None:
    """Brokers take a mebibyte at once."""
    site.change("POST", "topics", name="repeated", partitions=1)
    value = "".join(f"{number:x}" for number in range(10_000))
    done = site.change("POST", "topics", "repeated", "records", value=value, repeat=100)
    assert (done["offset"], done["records"]) == (0, 100)
    assert site.get("topics", "repeated")["partitions"][0]["endOffset"] == 100
    status, text = site.refused("POST", "topics", "repeated", "records", value=value, repeat=10_000)
    assert status == 400 and "less often" in text


def test_a_file_has_as_many_records_as_are_asked_for(site: Site) -> None:
    for asked, count in (("", ORDERS), ("&limit=50", 50), ("&limit=1", 1)):
        path = f"{site.path('topics', 'orders', 'records', 'export')}?start=oldest{asked}"
        assert len(site.ask("GET", path)[1].splitlines()) == count


def test_records_are_read_from_either_end_page_by_page(site: Site) -> None:
    for start, onwards in (("oldest", "next"), ("newest", "older")):
        seen: list[tuple[int, int]] = []
        asked: dict[str, Any] = {"start": start}
        while True:
            page = site.get("topics", "orders", "records", limit=70, **asked)
            seen += [(record["partition"], record["offset"]) for record in page["records"]]
            if page[onwards] is None:
                break
            asked = {"start": "cursor", "cursor": page[onwards]}
        assert len(seen) == len(set(seen)) == ORDERS
        for partition in range(3):
            offsets = [offset for number, offset in seen if number == partition]
            assert offsets == sorted(offsets, reverse=start == "newest")


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"key": "customer-3"}, len(range(3, ORDERS, 7))),
        ({"key": "/customer-[34]$/"}, len(range(3, ORDERS, 7)) + len(range(4, ORDERS, 7))),
        ({"value": '"order": 77,'}, 1),
        ({"header": "source: shop-1"}, ORDERS // 2),
        ({"header": "missing"}, 0),
        ({"path": "$.total >= 2900"}, 10),
        ({"path": "$.items[0].sku = s5"}, 1),
        ({"path": "$.items[*].sku ~ s29", "key": "customer"}, 11),
        ({"where": "$.total >= 2900 and not key = 'customer-3'"}, 8),
        ({"where": "headers.source = 'shop-1' or $.items[*].sku = 's0'", "key": "customer"}, ORDERS // 2 + 1),
        ({"where": "offset = 0"}, 3),
        ({"start": "offset", "offset": "1000000"}, 0),
        ({"start": "time", "time": "1"}, ORDERS),
        ({"start": "time", "time": "2100-01-01T00:00:00"}, 0),
        ({"partitions": "0,1,2"}, ORDERS),
    ],
)
def test_records_are_filtered(site: Site, asked: dict[str, str], count: int) -> None:
    found = site.get("topics", "orders", "records", **{"start": "oldest", "limit": 1000, **asked})
    assert len(found["records"]) == count


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"path": "total > 1"}, "$"),
        ({"path": "$.a["}, "not a path"),
        ({"key": "/(/"}, "regular expression"),
        ({"where": "total > 1"}, "there is no total"),
        ({"start": "offset"}, "offset"),
        ({"start": "time", "time": "yesterday"}, "yesterday"),
        ({"start": "nowhere"}, "newest"),
        ({"partitions": "9"}, "partition 9"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_asked_is_explained(site: Site, asked: dict[str, str], said: str) -> None:
    from urllib.parse import urlencode

    status, found, _ = site.ask("GET", f"{site.path('topics', 'orders', 'records')}?{urlencode(asked)}")
    assert status in (400, 404) and said in found["error"]


def test_what_is_written_is_read_as_what_it_is(site: Site) -> None:
    site.change("POST", "topics", name="kinds", partitions=2)
    large = '{"n":12345678901234567890}'
    for body in (
        {"value": large, "value_format": "json", "key": "k", "headers": {"h": "v"}, "compression": "zstd"},
        {"value": "AAAAAAAAAAc=", "value_format": "base64", "partition": 1},
        {"value": "", "value_format": "null", "key": "gone"},
        {"value": "plain"},
    ):
        written = site.change("POST", "topics", "kinds", "records", **body)
        assert written["offset"] >= 0
    found = site.get("topics", "kinds", "records", start="oldest")["records"]
    values = {record["value"]["as"]: record for record in found}
    assert values["json"]["value"]["text"] == large
    assert values["json"]["batch"]["compression"] == "zstd"
    assert values["json"]["headers"] == [{"name": "h", "as": "string", "text": "v"}]
    assert (values["int64"]["value"]["text"], values["int64"]["partition"]) == ("7", 1)
    assert values["null"]["valueBytes"] == -1
    assert values["string"]["key"]["text"] is None
    assert site.refused("POST", "topics", "kinds", "records", value="{", value_format="json")[0] == 400
    assert site.refused("POST", "topics", "kinds", "records", value="x", partition=7)[0] == 404


def test_records_of_the_cluster_itself_are_decoded(site: Site) -> None:
    found = site.get("topics", "__consumer_offsets", "records", key="billing", limit=1000)["records"]
    keys = [json.loads(record["key"]["text"]) for record in found]
    assert {"group": "billing", "topic": "orders", "partition": 0} in keys


def test_aborted_records_are_only_seen_by_who_asks_for_them(site: Site, broker: InProcessBroker) -> None:
    create(broker.bootstrap_servers, {"ledger": 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "books"})
    producer.init_transactions(60)
    for value, commits in (("kept", True), ("dropped", False), ("kept, too", True)):
        producer.begin_transaction()
        producer.produce("ledger", value)
        assert producer.flush(60) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    seen = site.get("topics", "ledger", "records", start="oldest")["records"]
    assert [record["value"]["text"] for record in seen] == ["kept", "kept, too"]
    assert seen[0]["batch"]["transactional"]
    everything = site.get("topics", "ledger", "records", start="oldest", committed="false")["records"]
    assert [(record["value"]["text"], record["batch"]["transaction"]) for record in everything] == [
        ("kept", "committed"),
        ("dropped", "aborted"),
        ("kept, too", "committed"),
    ]

    producer.begin_transaction()
    producer.produce("ledger", "open")
    assert producer.flush(60) == 0
    found = site.get("transactions", q="books", open="true")["transactions"]
    assert [(each["transactionalId"], each["state"]) for each in found] == [("books", "Ongoing")]
    assert site.get("transactions", "books")["producers"][0]["topic"] == "ledger"
    assert "books" in site.page("transactions") and "ledger" in site.page("transactions", "books")
    state = site.get("topics", "__transaction_state", "records", key="books", limit=10)["records"]
    assert {record["key"]["as"] for record in state} == {"__transaction_state"}
    assert any("ledger" in (record["value"]["text"] or "") for record in state)
    assert site.refused("POST", "transactions", "books", "abort", confirm="no")[0] == 400
    site.change("POST", "transactions", "books", "abort", confirm="books")
    assert site.get("transactions", "books")["state"] != "Ongoing"


def test_of_each_record_it_is_told_what_became_of_its_transaction(
    site: Site, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker.bootstrap_servers, {"outcomes": 1})
    check_outcomes_are_told(site, broker.bootstrap_servers, "outcomes", monkeypatch)


def events(site: Site, path: str) -> Any:
    connection = HTTPConnection(urlsplit(site.address).netloc, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.headers.get_content_type() == "text/event-stream"
    kind = ""
    try:
        for line in answer:
            name, _, text = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = text
            elif name == "data":
                yield kind, json.loads(text)
    finally:
        connection.close()


def test_records_are_told_of_as_they_come(site: Site) -> None:
    site.change("POST", "topics", name="news", partitions=2)
    site.change("POST", "topics", "news", "records", value="old")
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.1):
            site.change("POST", "topics", "news", "records", value="new", key="k")
            site.change("POST", "topics", "news", "records", value="other", key="k")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [
            data
            for kind, data in _first(
                events(site, f"{site.path('topics', 'news', 'records', 'tail')}?value=new"), 3
            )
        ]
    finally:
        stop.set()
        writer.join()
    assert {record["value"]["text"] for record in found} == {"new"}


def _first(stream: Any, count: int) -> list[tuple[str, Any]]:
    found = []
    for kind, data in stream:
        assert kind != "problem", data
        if kind == "record":
            found.append((kind, data))
        if len(found) == count:
            break
    return found


def test_a_search_tells_how_far_it_is(site: Site) -> None:
    path = f"{site.path('topics', 'orders', 'records', 'search')}?start=oldest&value=%22order%22%3A+7%2C"
    told = list(events(site, path))
    assert [kind for kind, _ in told][-1] == "done"
    assert told[-1][1] == {"looked": ORDERS, "found": 1, "total": ORDERS, "full": False}
    assert sum(kind == "record" for kind, _ in told) == 1


def test_records_are_saved_as_files(site: Site) -> None:
    status, text, headers = site.ask(
        "GET", f"{site.path('topics', 'orders', 'records', 'export')}?start=oldest"
    )
    assert status == 200 and 'filename="orders.jsonl"' in headers["content-disposition"]
    assert len([json.loads(line) for line in text.splitlines()]) == ORDERS
    site.change("POST", "topics", name="sums", partitions=1)
    site.change("POST", "topics", "sums", "records", value="=1+1", key="a,b")
    _, text, _ = site.ask(
        "GET", f"{site.path('topics', 'sums', 'records', 'export')}?format=csv&start=oldest"
    )
    head, row = text.splitlines()
    assert head == "partition,offset,timestamp,key,value,headers"
    assert '"a,b",\'=1+1,' in row


def test_what_is_written_and_read_is_measured_over_time(site: Site, broker: InProcessBroker) -> None:
    site.change("POST", "topics", name="measured", partitions=1)
    commit(broker.bootstrap_servers, "measuring", "measured", 1)
    until = time.monotonic() + 60
    while True:
        # More and more of them: a rate is seen as soon as two looks have some in between.
        site.change("POST", "topics", "measured", "records", value="x" * 100, repeat=100)
        found = site.get("topics", "measured", "history")
        lags = site.get("groups", "measuring", "history")["lag"]
        written = [value for value in found["recordsIn"] if value]
        if len(written) > 1 and any(found["bytesIn"]) and len({lag for lag in lags if lag}) > 1:
            break
        assert time.monotonic() < until, found
    assert len(found["times"]) == len(found["recordsIn"]) and found["times"] == sorted(found["times"])
    assert any(site.get("history")["recordsIn"])
    listed = site.get("topics", sort="rate", down="true")["topics"]
    assert listed[0]["recordsPerSecond"] is not None
    assert 'data-source="/api/clusters/local/topics/measured/history"' in site.page("topics", "measured")
    unknown = site.get("groups", "nobody", "history")
    assert not any(unknown["lag"])


def test_groups_are_found_with_their_lag_reset_and_deleted(site: Site, broker: InProcessBroker) -> None:
    groups = site.get("groups", q="bill")["groups"]
    assert [(group["name"], group["lag"]) for group in groups] == [("billing", ORDERS - 3)]
    assert site.get("topics", "orders", "consumers")["consumers"][0]["lag"] == ORDERS - 3
    name = "a/b <i>"
    commit(broker.bootstrap_servers, name, "payments", 1)
    found = site.get("groups", name)
    assert [(each["topic"], each["offset"]) for each in found["partitions"]] == [("payments", 1)]
    site.change("POST", "topics", "payments", "records", value="x", repeat=10)

    would = site.change("POST", "groups", name, "offsets", topic="payments", to="latest")
    assert would == {
        "preview": True,
        "partitions": [{"topic": "payments", "partition": 0, "from": 1, "to": 10}],
    }
    assert site.get("groups", name)["partitions"][0]["offset"] == 1
    for asked, offset in (
        ({"to": "latest"}, 10),
        ({"to": "shift", "offset": -4}, 6),
        ({"to": "earliest"}, 0),
        ({"to": "offset", "offset": 99}, 10),
        ({"to": "time", "time": "1"}, 0),
    ):
        site.change("POST", "groups", name, "offsets", topic="payments", preview=False, **asked)
        assert site.get("groups", name)["partitions"][0]["offset"] == offset
    assert "a/b &lt;i&gt;" in site.page("groups", name)
    site.change("DELETE", "groups", name, confirm=name)
    assert site.ask("GET", site.path("groups", name))[0] == 404


def test_groups_of_the_new_protocol_are_shown(site: Site, broker: InProcessBroker) -> None:
    settings = {"group.id": "modern", "client.id": "a-modern", "group.protocol": "consumer"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    consumer.subscribe(["orders"])
    try:
        until = time.monotonic() + 60
        while len(consumer.assignment()) < 3:
            consumer.poll(0.1)
            assert time.monotonic() < until
        found = site.get("groups", "modern")
        (member,) = found["members"]
        assert (found["type"], member["client"]) == ("Consumer", "a-modern")
        assert member["assigned"] == [{"topic": "orders", "partitions": [0, 1, 2]}]
        assert "Consumer group" in site.page("groups", "modern")
    finally:
        consumer.close()


def test_access_is_seen_and_changed(site: Site) -> None:
    rule = {"principal": "User:eve", "operation": "READ", "resource": "TOPIC", "name": "orders"}
    site.change("POST", "acls", **rule)
    (found,) = site.get("acls", q="eve")["rules"]
    assert found == {**rule, "pattern": "LITERAL", "permission": "ALLOW", "host": "*"}
    assert "User:eve" in site.page("acls")
    site.change("DELETE", "acls", **rule, confirm="User:eve")
    assert site.get("acls", q="eve")["rules"] == []
    assert site.refused("DELETE", "acls", **rule, confirm="User:eve")[0] == 404
    assert "READ" in site.refused("POST", "acls", **{**rule, "operation": "STEAL"})[1]

    site.change("PUT", "users", "carol", password="secret", mechanism="SCRAM-SHA-256")
    assert {"user": "carol", "mechanism": "SCRAM-SHA-256", "iterations": 4096} in site.get("users")["users"]
    assert "carol" in site.page("users")
    site.change("DELETE", "users", "carol", mechanism="SCRAM-SHA-256", confirm="carol")
    assert site.get("users")["users"] == []

    site.change("PUT", "quotas", quota="producer_byte_rate", value=1024, user="", client_id="app")
    (quota,) = site.get("quotas")["quotas"]
    assert (quota["user"], quota["client_id"], quota["ip"], quota["value"]) == ("", "app", None, 1024)
    assert "producer_byte_rate" in site.page("quotas")
    gone = {"quota": "producer_byte_rate", "user": "", "client_id": "app"}
    site.change("DELETE", "quotas", **gone, confirm="producer_byte_rate")
    assert site.get("quotas")["quotas"] == []


def test_what_cannot_be_undone_is_typed(site: Site) -> None:
    rule = {"principal": "User:frank", "operation": "READ", "resource": "TOPIC", "name": "orders"}
    site.change("POST", "acls", **rule)
    for method, segments, body, name in (
        ("DELETE", ("topics", "orders"), {}, "orders"),
        ("POST", ("topics", "orders", "empty"), {}, "orders"),
        ("DELETE", ("groups", "billing"), {}, "billing"),
        ("POST", ("transactions", "books", "abort"), {}, "books"),
        ("DELETE", ("acls",), rule, "User:frank"),
        ("DELETE", ("users", "frank"), {"mechanism": "SCRAM-SHA-256"}, "frank"),
        ("DELETE", ("quotas",), {"quota": "producer_byte_rate", "user": "frank"}, "producer_byte_rate"),
        ("DELETE", ("reassignments",), {"partitions": ["orders-0", "orders-1"]}, "orders-0,orders-1"),
        ("DELETE", ("reassignments",), {}, "all"),
        ("POST", ("leaders",), {"kind": "unclean"}, "lose records"),
        ("DELETE", ("connectors", "copy"), {}, "copy"),
        ("DELETE", ("connectors", "copy", "offsets"), {}, "copy"),
    ):
        for typed in ("", f"{name} ", name.upper()):
            status, text = site.refused(method, *segments, **body, confirm=typed)
            assert status == 400 and "to confirm" in text and name in text, text
    assert site.get("topics", "orders")["partitions"] and site.get("groups", "billing")["lag"]
    site.change("DELETE", "acls", **rule, confirm="User:frank")


def test_no_deletion_is_without_a_name_to_type() -> None:
    asked = {
        each.answer.__name__: each
        for family in FAMILIES.values()
        for each in family
        if each.method == "DELETE"
    }
    assert len(asked) >= 8
    for name, endpoint in asked.items():
        (confirm,) = (each for each in fields_of(endpoint.asked) if each.name == "confirm")
        assert confirm.required, name


def test_a_change_needs_the_token_of_a_page_and_json(site: Site) -> None:
    body = {"name": "forged"}
    stranger = Site(site.address)
    path = site.path("topics")
    assert stranger.ask("POST", path, body, **{"Content-Type": "application/json"})[0] == 403
    for changed in (
        {"X-CSRF-Token": "0" * 64},
        {"Cookie": "ottla_console=another"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert site.ask("POST", path, body, **changed)[0] == 403
    assert site.ask("POST", path, body, **{"Content-Type": "text/plain"})[0] == 415
    assert site.get("topics", q="forged")["total"] == 0


def test_nothing_is_answered_under_another_name(site: Site) -> None:
    status, text, _ = site.ask("GET", site.path("topics"), Host="evil.example")
    assert status == 421 and "--allowed-host evil.example" in text


def test_a_console_that_only_looks_changes_nothing(site: Site) -> None:
    watched = Site(site.address, "watched", site.headers)
    assert watched.get("topics", "orders")["name"] == "orders"
    status, text = watched.refused("POST", "topics", name="written")
    assert status == 403 and "--read-only" in text
    for page in ((), ("topics",), ("topics", "orders"), ("groups", "billing"), ("acls",)):
        assert "data-method" not in watched.page(*page)


def test_every_change_is_written_down(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        site.change("POST", "topics", name="noted", partitions=1)
        site.refused("POST", "topics", name="noted")
        site.change("PUT", "users", "dave", password="do not write this")
        site.get("topics")
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ottla.console.audit"]
    assert [(line["change"], line["outcome"]) for line in lines] == [
        ("create_topic", "done"),
        ("create_topic", "refused: TOPIC_ALREADY_EXISTS"),
        ("set_user", "done"),
    ]
    assert lines[0]["asked"] == {"name": "noted", "partitions": 1}
    assert "do not write this" not in caplog.text


def test_pages_say_what_they_may_do(site: Site) -> None:
    status, _, headers = site.ask("GET", site.page_path("topics"))
    policy = headers["content-security-policy"]
    assert status == 200 and "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy
    _, text, _ = Site(site.address).ask("GET", "/")
    assert "<script>" not in text and " style=" not in text and " onclick=" not in text


def test_what_is_not_there_is_not_found(site: Site) -> None:
    for path in ("/nothing", site.page_path("topics", "missing"), "/c/elsewhere", f"/c/{EVIL}"):
        status, text, _ = site.ask("GET", path)
        assert status == 404 and EVIL not in text, path
    for path in ("/api/nothing", site.path("topics", "missing"), "/api/clusters/elsewhere/topics"):
        status, found, _ = site.ask("GET", path)
        assert status == 404 and found["error"], path


def test_the_api_describes_itself(site: Site) -> None:
    status, document, _ = site.ask("GET", "/api/openapi.json")
    assert status == 200 and document["openapi"].startswith("3.")
    operations = [each for path in document["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(names) == len(set(names)) > 30
    create_topic = document["paths"]["/api/clusters/{cluster}/topics"]["post"]
    assert create_topic["requestBody"]["content"]["application/json"]["schema"]["required"] == ["name"]
    assert "/api/clusters/{cluster}/topics/{topic}/records/tail" in site.ask("GET", "/api")[1]


def test_a_topic_that_somebody_else_deletes_takes_no_page_with_it(broker: InProcessBroker) -> None:
    # Measured at the start alone, so that what it heard of topics is from before.
    settings = ClusterSettings("local", broker.bootstrap_servers, sample_s=600.0)
    with console_served([settings]) as address:
        site = Site(address).log_in()
        site.change("POST", "topics", name="vanishing", partitions=1)
        site.change("POST", "topics", "vanishing", "records", value="x", repeat=3)
        commit(broker.bootstrap_servers, "left-behind", "vanishing", 1)
        assert site.get("groups", "left-behind")["lag"] == 2
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics(["vanishing"])["vanishing"].result(60)
        assert site.get("groups", "left-behind")["lag"] == 0
        assert "left-behind" in {group["name"] for group in site.get("groups", q="left")["groups"]}
        assert site.refused("GET", "topics", "vanishing")[0] == 404


def test_share_groups_are_shown_set_and_deleted(site: Site, broker: InProcessBroker) -> None:
    check_a_share_group_is_shown_set_and_deleted(site, broker.bootstrap_servers)
