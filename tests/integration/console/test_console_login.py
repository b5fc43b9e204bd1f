"""Logging in to the console: by the brokers' own users, or at a proxy in front."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from bench.chromium import browser, executable
from console_site import Site, create
from tour import tokens

from ottla.console.api import records
from ottla.console.app import LOG_IN_BYTES_MAX, console_app
from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.console.sessions import GUESSES_OF_ONE_MAX, OF_ONE_USER_MAX
from ottla.testing import InProcessBroker

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def secured() -> Iterator[InProcessBroker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_alice="a-secret" user_bob="b-secret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "delegation.token.secret.key": "a key of the test",
    }
    with InProcessBroker(settings) as running:
        create(running.bootstrap_servers, {"orders": 1})
        yield running


@pytest.fixture(scope="module")
def closed_site(secured: InProcessBroker) -> Iterator[Site]:
    closed = ClusterSettings(
        "local",
        f"127.0.0.1:{secured.ports['SASL']}",
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
        login=True,
        connect="http://127.0.0.1:1",
    )
    with console_served([closed, ClusterSettings("open", secured.bootstrap_servers)]) as address:
        yield Site(address).log_in()


def entered(site: Site, user: str, password: str, onwards: str = "") -> tuple[int, Site, dict[str, str]]:
    asked = {"cluster": "local", "user": user, "password": password, "mechanism": "PLAIN", "onwards": onwards}
    status, found, headers = site.ask("POST", "/api/login", asked)
    cookie = headers.get("set-cookie", "").partition(";")[0]
    cookies = f"{site.headers['Cookie']}; {cookie}"
    return status, replace(site, headers={**site.headers, "Cookie": cookies}), found


def test_brokers_decide_who_gets_in_and_what_they_may_do(closed_site: Site) -> None:
    status, _, headers = closed_site.ask("GET", "/c/local/topics?q=ord")
    assert status == 303
    assert headers["location"] == "/login?cluster=local&onwards=%2Fc%2Flocal%2Ftopics%3Fq%3Dord"
    assert 'type="password"' in closed_site.ask("GET", headers["location"])[1]
    status, found, _ = closed_site.ask("GET", "/api/clusters/local/topics")
    assert status == 401 and "/api/login" in found["error"]
    assert closed_site.ask("GET", "/api/clusters/open/topics")[0] == 200

    status, _, found = entered(closed_site, "alice", "wrong")
    assert status == 401 and "alice" in found["error"] and "wrong" not in found["error"]

    status, alice, found = entered(closed_site, "alice", "a-secret", "/c/local/topics?q=ord")
    assert (status, found["to"]) == (200, "/c/local/topics?q=ord")
    assert "orders" in alice.page("topics") and "Log out" in alice.page()
    alice.change("POST", "topics", name="of.alice", partitions=1)

    # Bob has a session of his own: he sees what his rules let him see, whoever else looks at the same time.
    status, bob, _ = entered(closed_site, "bob", "b-secret")
    assert status == 200
    assert bob.get("topics")["topics"] == []
    assert bob.refused("POST", "topics", name="of.bob")[0] == 403
    assert len(alice.get("topics")["topics"]) == 2

    assert bob.ask("POST", "/api/logout", {})[0] == 200
    assert bob.ask("GET", "/api/clusters/local/topics")[0] == 401
    assert alice.get("topics")["total"] == 2


def test_connectors_are_changed_by_those_who_may_alter_the_cluster(closed_site: Site) -> None:
    _, alice, _ = entered(closed_site, "alice", "a-secret")
    _, bob, _ = entered(closed_site, "bob", "b-secret")
    status, text = bob.refused("POST", "connectors", "copy", "stop")
    assert status == 403 and "ALTER" in text
    # She gets as far as Connect, which does not run.
    status, text = alice.refused("POST", "connectors", "copy", "stop")
    assert status == 503 and "Connect" in text


def test_tokens_are_made_renewed_and_ended_by_who_types_their_id(closed_site: Site) -> None:
    _, bob, _ = entered(closed_site, "bob", "b-secret")
    made = bob.change("POST", "tokens", renewers=["User:alice"], life_ms=3_600_000)
    assert made["owner"] == "User:bob"
    assert [each["id"] for each in bob.get("tokens")["tokens"]] == [made["id"]]
    page = bob.page("tokens")
    assert made["id"] in page and "User:alice" in page
    assert bob.change("POST", "tokens", "renew", hmac=made["hmac"])["expires"]
    status, text = bob.refused("POST", "tokens", "expire", hmac=made["hmac"], confirm="it")
    assert status == 400 and made["id"] in text
    assert bob.refused("POST", "tokens", "expire", hmac="AAAA", confirm=made["id"])[0] == 404
    bob.change("POST", "tokens", "expire", hmac=made["hmac"], confirm=made["id"])
    assert bob.get("tokens")["tokens"] == []


@pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")
def test_one_logs_in_in_a_browser_and_has_tokens(closed_site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.console.audit")
    with browser() as page:
        tokens(page, closed_site.address)
        assert page.complaints == []
    lines = [json.loads(each.message) for each in caplog.records if each.name == "ottla.console.audit"]
    done = [line["change"] for line in lines if line["outcome"] == "done"]
    assert done == ["log_in", "create_token", "renew_token", "expire_token", "log_out"]


def test_only_pages_of_the_console_are_gone_on_to(closed_site: Site) -> None:
    for elsewhere in (
        "https://evil.example/",
        "//evil.example/c/local",
        "/\\evil.example",
        "javascript:alert(1)",
    ):
        assert entered(closed_site, "alice", "a-secret", elsewhere)[2]["to"] == "/c/local"


def test_a_log_in_needs_a_page_of_the_console(closed_site: Site) -> None:
    forged = replace(closed_site, headers={**closed_site.headers, "X-CSRF-Token": "0" * 64})
    assert entered(forged, "alice", "a-secret")[0] == 403
    assert closed_site.ask("GET", "/login?cluster=%3Cscript%3E")[0] == 404


def test_who_logged_in_is_in_the_audit_log_and_the_password_is_not(
    closed_site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        entered(closed_site, "alice", "not the password")
        _, alice, _ = entered(closed_site, "alice", "a-secret")
        alice.change("POST", "topics", name="noted.too", partitions=1)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ottla.console.audit"]
    assert [(line["who"], line["change"], line["outcome"][:7]) for line in lines] == [
        ("alice", "log_in", "refused"),
        ("alice", "log_in", "done"),
        ("alice", "create_topic", "done"),
    ]
    assert "a-secret" not in caplog.text and "not the password" not in caplog.text


def test_behind_a_proxy_nobody_gets_in_unnamed(
    secured: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = [ClusterSettings("local", secured.bootstrap_servers)]
    with console_served(settings, user_header="X-Forwarded-User") as address:
        stranger = Site(address)
        status, text, _ = stranger.ask("GET", "/c/local")
        assert status == 401 and "X-Forwarded-User" in text
        assert stranger.ask("GET", "/api/token", **{"X-Forwarded-User": " "})[0] == 401
        assert asked_with(address, "X-Forwarded-User: root", "X-Forwarded-User: carol") == 400
        carol = Site(address, headers={"X-Forwarded-User": "carol"})
        _, found, headers = carol.ask("GET", "/api/token")
        carol.headers |= {
            "Cookie": headers["set-cookie"].partition(";")[0],
            "X-CSRF-Token": found["token"],
            "Content-Type": "application/json",
        }
        assert "carol" in carol.page()
        with caplog.at_level(logging.INFO, "ottla.console.audit"):
            carol.change("POST", "topics", name="of.carol", partitions=1)
        assert '"who": "carol"' in caplog.text


def asked_with(address: str, *headers: str) -> int:
    """The status of an answer to a request with these lines, in this order."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        lines = ("GET /api/token HTTP/1.1", "Host: localhost", *headers, "Connection: close", "", "")
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.makefile("rb").readline().split()[1])


def test_who_guesses_does_not_keep_others_out(closed_site: Site) -> None:
    guesses = 6
    with ThreadPoolExecutor(guesses) as threads:
        found = [threads.submit(entered, closed_site, "alice", f"guess {at}") for at in range(guesses)]
        statuses = sorted(each.result()[0] for each in found)
    assert statuses[:GUESSES_OF_ONE_MAX] == [401] * GUESSES_OF_ONE_MAX and statuses[-1] == 429
    assert entered(closed_site, "alice", "a-secret")[0] == 200


def test_sessions_of_one_user_do_not_end_those_of_others(closed_site: Site) -> None:
    _, bob, _ = entered(closed_site, "bob", "b-secret")
    sessions = [entered(closed_site, "alice", "a-secret")[1] for _ in range(OF_ONE_USER_MAX + 1)]
    assert bob.ask("GET", "/api/clusters/local/topics")[0] == 200
    assert sessions[0].ask("GET", "/api/clusters/local/topics")[0] == 401
    assert sessions[-1].ask("GET", "/api/clusters/local/topics")[0] == 200


def test_a_log_in_is_short(closed_site: Site) -> None:
    """Whoever sends it is nobody yet."""
    assert entered(closed_site, "alice", "x" * LOG_IN_BYTES_MAX)[0] == 413


def test_one_user_does_not_take_all_streams(closed_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "STREAMS_OF_ONE_USER_MAX", 1)
    _, alice, _ = entered(closed_site, "alice", "a-secret")
    _, again, _ = entered(closed_site, "alice", "a-secret")
    connection = HTTPConnection(urlsplit(alice.address).netloc, timeout=60)
    try:
        tail = alice.path("topics", "orders", "records", "tail")
        connection.request("GET", tail, headers=alice.headers)
        assert connection.getresponse().readline()
        for site in (alice, again):
            status, found, _ = site.ask("GET", site.path("topics", "orders", "records", "export"))
            assert status == 429 and "you have 1" in found["error"]
    finally:
        connection.close()


def test_behind_a_proxy_everybody_has_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """Also where people log in: guesses are counted by it."""
    from starlette.testclient import TestClient

    settings = ClusterSettings("local", "127.0.0.1:1", {"security.protocol": "SASL_PLAINTEXT"}, login=True)
    for proxies, address in ((["10.0.0.9"], "203.0.113.7"), ([], "10.0.0.9")):
        caplog.clear()
        with (
            caplog.at_level(logging.INFO, "ottla.console.audit"),
            TestClient(
                console_app([settings], proxies=proxies),
                base_url="http://localhost",
                client=("10.0.0.9", 1),
            ) as client,
        ):
            client.post("/api/login", json={}, headers={"X-Forwarded-For": "203.0.113.7"})
        assert f'"from": "{address}"' in caplog.text


def test_only_the_proxy_is_believed() -> None:
    from starlette.testclient import TestClient

    from ottla.console.proxy import LOOPBACK, ProxyUser

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("a stranger got in")

    client = TestClient(ProxyUser(app, "X-Forwarded-User", LOOPBACK), client=("10.0.0.9", 1))
    answer = client.get("/", headers={"X-Forwarded-User": "root"})
    assert answer.status_code == 403 and "--proxy 10.0.0.9" in answer.text
