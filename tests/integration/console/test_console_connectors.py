"""Connectors in the console, against a worker of ours: over HTTP, and in a real browser."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.chromium import browser, executable
from connect.worker_process import our_worker, settings_of
from console_site import Site
from test_console_pipelines import answering_by_path

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import InProcessBroker

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
EVIL = """"'><img src=x onerror="window.hacked=1"><script>window.hacked=1<script>"""


@pytest.fixture(scope="module")
def connect_site(broker: InProcessBroker) -> Iterator[Site]:
    with our_worker(settings_of(broker.bootstrap_servers)) as worker:
        connect = f"http://{worker.address}"
        settings = [
            ClusterSettings("local", broker.bootstrap_servers, connect=connect),
            ClusterSettings("watched", broker.bootstrap_servers, read_only=True, connect=connect),
            ClusterSettings("gone", broker.bootstrap_servers, connect="http://127.0.0.1:1"),
            ClusterSettings("without", broker.bootstrap_servers),
        ]
        with console_served(settings) as address:
            yield Site(address).log_in()


def wait_state(site: Site, name: str, state: str, **more: Any) -> dict[str, Any]:
    until = time.monotonic() + 60
    while True:
        found: dict[str, Any] = site.get("connectors", name)
        if found["state"] == state and all(found[key] == value for key, value in more.items()):
            return found
        assert time.monotonic() < until, found


def test_a_connector_is_made_from_what_its_plugin_declares_and_looked_after(
    connect_site: Site, tmp_path: Path
) -> None:
    site = connect_site
    plugins = {each["class"]: each["type"] for each in site.get("connector-plugins")["plugins"]}
    assert (plugins[SOURCE], plugins[SINK]) == ("source", "sink")
    declared = {each["name"]: each for each in site.get("connector-plugins", SOURCE)["settings"]}
    assert declared["topic"]["isRequired"] and declared["topic"]["doc"]
    page = site.page("connector-plugins", SOURCE)
    assert 'name="set.topic"' in page and 'name="set.tasks.max"' in page

    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    settings = {"connector.class": SOURCE, "tasks.max": "none"}
    wrong = site.change("POST", "connector-plugins", SOURCE, "check", set=settings)
    assert wrong["count"] == len(wrong["errors"]) == 2 and "tasks.max" in wrong["errors"]
    settings = {"connector.class": SOURCE, "topic": "lines", "file": str(source)}
    assert site.change("POST", "connector-plugins", SOURCE, "check", set=settings)["count"] == 0
    site.change("PUT", "connectors", "reader", set=settings)
    status, text = site.refused("PUT", "connectors", "reader", set=settings)
    assert status == 409 and "reader" in text

    found = wait_state(site, "reader", "RUNNING", running=1)
    until = time.monotonic() + 60
    while not (found["topics"] and found["offsets"]):
        found = site.get("connectors", "reader")
        assert time.monotonic() < until, found
    assert found["topics"] == ["lines"] and str(source) in json.dumps(found["offsets"])
    listed = {each["name"]: each for each in site.get("connectors", q="READ")["connectors"]}
    assert (listed["reader"]["type"], listed["reader"]["running"]) == ("source", 1)
    assert "reader" in site.page("connectors") and "lines" in site.page("connectors", "reader")

    site.change("PATCH", "connectors", "reader", "settings", set={"batch.size": "7"}, delete=[])
    given = {each["name"]: each["value"] for each in site.get("connectors", "reader")["settings"]}
    assert given["batch.size"] == "7"
    site.change("PATCH", "connectors", "reader", "settings", delete=["batch.size"])
    given = {each["name"]: each for each in site.get("connectors", "reader")["settings"]}
    assert not given["batch.size"]["isGiven"]

    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        site.change("POST", "connectors", "reader", action)
        wait_state(site, "reader", state)
    assert site.refused("DELETE", "connectors", "reader", "offsets", confirm="no")[0] == 400
    site.change("DELETE", "connectors", "reader", "offsets", confirm="reader")
    assert site.get("connectors", "reader")["offsets"] == []
    site.change("DELETE", "connectors", "reader", confirm="reader")
    assert "reader" not in [each["name"] for each in site.get("connectors")["connectors"]]


def test_what_failed_says_why_and_starts_anew(connect_site: Site, tmp_path: Path) -> None:
    site = connect_site
    target = tmp_path / "not yet" / "out.txt"
    settings = {
        "connector.class": SINK,
        "topics": "orders",
        "file": str(target),
        "errors.deadletterqueue.topic.name": "dead-letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    site.change("PUT", "connectors", "writer", set=settings)
    found = wait_state(site, "writer", "RUNNING", failed=1)
    assert "not yet" in found["taskStates"][0]["trace"]
    page = site.page("connectors", "writer")
    assert "/topics/dead-letters/records" in page and "Restart what failed" in page
    log = site.get("connectors", "writer", "log", q="FAILED", task=0)
    assert log["missing"] == [] and "not yet" in log["lines"][0]["text"]
    assert (log["lines"][0]["level"], log["lines"][0]["task"]) == ("ERROR", 0)
    assert "task writer-0 failed" in page
    assert site.get("connectors", "writer", "log", task=1)["lines"] == []
    assert site.refused("GET", "connectors", "nobody", "log")[0] == 404
    target.parent.mkdir()
    site.change("POST", "connectors", "writer", "restart", only_failed=True)
    wait_state(site, "writer", "RUNNING", running=1, failed=0)
    site.change("POST", "connectors", "writer", "tasks", "0", "restart")
    site.change("DELETE", "connectors", "writer", confirm="writer")


def test_secrets_are_neither_shown_nor_written_down(
    connect_site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = connect_site
    settings = {
        "connector.class": SOURCE,
        "topic": "kept",
        "file": str(tmp_path / "x"),
        "my.password": "hush",
    }
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        site.change("POST", "connector-plugins", SOURCE, "check", set=settings)
        site.change("PUT", "connectors", "discreet", set=settings)
        site.change("PATCH", "connectors", "discreet", "settings", set={"batch.size": "9"})
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ottla.console.audit"]
    # A check changes nothing.
    assert [line["change"] for line in lines] == ["create_connector", "alter_connector"]
    shown = {each["name"]: each["value"] for each in site.get("connectors", "discreet")["settings"]}
    assert shown["my.password"] == "(hidden)"
    assert "hush" not in site.page("connectors", "discreet") and "hush" not in caplog.text
    # What was hidden is still there after the change of something else.
    assert shown["batch.size"] == "9"
    site.change("DELETE", "connectors", "discreet", confirm="discreet")


def test_without_connect_or_rights_nothing_is_promised(connect_site: Site) -> None:
    def at(cluster: str) -> Site:
        return Site(connect_site.address, cluster, connect_site.headers)

    status, text = at("gone").refused("GET", "connectors")
    assert status == 503 and "http://127.0.0.1:1" in text
    status, text = at("without").refused("GET", "connectors")
    assert status == 501 and "--connect" in text
    assert "Connectors" not in at("without").page() and "Connectors" in at("gone").page()
    watched = at("watched")
    assert "data-method" not in watched.page("connectors")
    assert watched.refused("PUT", "connectors", "x", set={})[0] == 403
    assert watched.refused("POST", "connectors", "x", "stop")[0] == 403
    assert connect_site.refused("GET", "connectors", "missing")[0] == 404


def test_workers_that_tell_nothing_of_their_log_keep_no_page_from_being_seen(broker: InProcessBroker) -> None:
    """Apache Kafka's have no such route."""
    answers = {
        "/connectors/theirs": {
            "name": "theirs",
            "config": {"connector.class": SINK},
            "tasks": [],
            "type": "sink",
        },
        "/connectors/theirs/status": {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": []},
    }
    with answering_by_path(answers) as connect:
        settings = ClusterSettings("local", broker.bootstrap_servers, connect=connect)
        with console_served([settings]) as address:
            site = Site(address).log_in()
            log = site.get("connectors", "theirs", "log")
            assert log["lines"] == [] and "Apache Kafka" in log["missing"][0]
            assert "hese workers do not tell what they log" in site.page("connectors", "theirs")
            assert site.refused("GET", "connectors", "nobody", "log")[0] == 404


@pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")
def test_a_connector_is_made_and_stopped_in_a_browser(connect_site: Site, tmp_path: Path) -> None:
    address = f"{connect_site.address}/c/local"
    name = f"clicked {EVIL}"
    with browser() as page:
        page.open(f"{address}/connector-plugins")
        page.click(f"a.card[href$='{SINK}']")
        page.wait_for("document.querySelector('[name=\"set.topics\"]')")
        page.fill("[name=connector]", name)
        page.fill("[name='set.tasks.max']", "many")
        page.click("button[data-then=check]")
        page.wait_for("document.querySelectorAll('.wrong').length > 0")
        assert "many" in page.run(
            "document.querySelector('[name=\"set.tasks.max\"]').closest('label').innerText"
        )
        page.fill("[name='set.tasks.max']", "1")
        page.fill("[name='set.topics']", "payments")
        page.fill("[name='set.file']", str(tmp_path / "nowhere" / EVIL))
        page.click("button[data-then=check]")
        page.wait_for("document.querySelector('.answer.good')?.textContent.includes('Nothing is wrong')")
        page.click("form.panel .buttons button:last-child")
        page.wait_for(
            "location.pathname.startsWith('/c/local/connectors/') && document.querySelector('.figures')"
        )
        # The page renews itself: what fails later is seen without a click, and is text whatever it says.
        page.wait_for("document.querySelector('#results').innerText.includes('FAILED')")
        page.run("document.querySelectorAll('#results details').forEach((each) => { each.open = true; })")
        # What it wrote into the log, too: the name of the file is in it.
        assert "onerror" in page.run("document.querySelector('.log').innerText")
        page.open(f"{address}/connectors")
        page.wait_for("document.body.innerText.includes('clicked')")
        page.click("tbody a")
        page.wait_for("document.querySelector('[data-action$=\"/stop\"]')")
        page.click("[data-action$='/stop'] button")
        page.wait_for("document.querySelector('[data-action$=\"/resume\"]')")
        page.click("[data-opens=delete]")
        page.fill("#delete [name=confirm]", name)
        page.click("#delete [type=submit]")
        page.wait_for("location.pathname === '/c/local/connectors'")
        assert page.run("window.hacked") is None and page.complaints == []
    assert connect_site.get("connectors")["connectors"] == []
