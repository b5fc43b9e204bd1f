"""The console in a real browser: keys, charts, live records, and names that try to be markup.

`test_console_tour.py` goes through all pages and actions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from bench.chromium import Browser, browser, executable
from confluent_kafka import Consumer, Producer
from console_site import Site, commit
from test_console_pipelines import answering, tell

from ottla.client.applications import Announcement
from ottla.console.records.scan import walk
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")

EVIL = """"'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"""

_QUERY = {"query": EVIL, "kind": EVIL, "topics": [EVIL], "state": EVIL, "failure": EVIL, "restarts": 0}
_NODE = {"query": EVIL, "name": EVIL, "type": EVIL, "topics": [EVIL], "stores": [EVIL], "children": [EVIL]}
EVIL_APPLICATION = {
    "applicationId": "evil",
    "state": EVIL,
    "queries": [{**_QUERY, "batches": 1, "lag": 1}],
    "nodes": [{**_NODE, "records": 1, "dropped": {}, "failed": {}}],
    "stores": [{"query": EVIL, "name": EVIL, "kind": EVIL, "changelog": EVIL}],
}


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def page(window: Browser) -> Iterator[Browser]:
    """Whatever a test does, no script fails and no policy is broken."""
    window.complaints.clear()
    yield window
    assert window.complaints == []


def rows(page: Browser) -> int:
    return int(page.run("document.querySelectorAll('#records .record').length"))


def test_keys_theme_and_links_lead_through_the_pages(page: Browser, site: Site) -> None:
    page.open(f"{site.address}/")
    page.wait_for("location.pathname === '/c/local' && document.body.innerText.includes('Metadata quorum')")
    for key, path in (("t", "topics"), ("g", "groups"), ("x", "transactions"), ("a", "acls"), ("u", "users")):
        page.press("g")
        page.press(key)
        page.wait_for(f"location.pathname === '/c/local/{path}' && document.readyState === 'complete'")
        page.wait_for(f"document.querySelector('.sections [aria-current]').href.endsWith('/{path}')")
    page.press("?")
    page.wait_for("document.querySelector('#keys').open")
    page.click("#keys [data-closes]")
    page.prefer("light")
    page.click("[data-theme-button]")
    page.wait_for("getComputedStyle(document.documentElement).colorScheme === 'dark'")
    page.open(f"{site.address}/c/local/quotas")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    page.click("[data-theme-button]")


def test_long_names_and_narrow_windows_leave_all_in_sight(page: Browser, site: Site) -> None:
    name = "t" * 249
    site.change("POST", "topics", name=name, partitions=1)
    broker = site.get("overview")["brokers"][0]
    commit(f"{broker['host']}:{broker['port']}", "g" * 249, name, 1)
    until = time.monotonic() + 60
    # What the cluster has is looked at now and then.
    while not (site.get("topics", q="t" * 9)["topics"] and site.get("groups", q="g" * 9)["groups"]):
        assert time.monotonic() < until
    try:
        for path in ("topics", "groups"):
            page.open(f"{site.address}/c/local/{path}?q={'t' * 9 if path == 'topics' else 'g' * 9}")
            page.wait_for("document.querySelector('.table td')")
            assert page.run("document.querySelector('.table').scrollWidth") <= page.run(
                "document.querySelector('.table').clientWidth"
            )
        page.resize(400, 850)
        for path in (f"topics/{name}?part=settings", "balance", "groups", f"groups/{'g' * 249}"):
            page.open(f"{site.address}/c/local/{path}")
            page.wait_for("'ready' in document.documentElement.dataset")
            assert page.run("document.documentElement.scrollWidth") <= 400
            assert page.run("document.querySelector('.brand').offsetHeight") < 40
            marked = "[...document.querySelectorAll('[aria-current=page]')]"
            for current in page.run(f"{marked}.map(each => each.getBoundingClientRect().right)"):
                assert current <= 400
    finally:
        page.resize(1280, 900)
        site.change("DELETE", "topics", name, confirm=name)


def test_charts_are_drawn_and_tell_what_was_when_one_points(page: Browser, site: Site) -> None:
    site.change("POST", "topics", name="drawn", partitions=1)
    until = time.monotonic() + 60
    while not any(site.get("topics", "drawn", "history")["bytesIn"]):
        site.change("POST", "topics", "drawn", "records", value="x", repeat=50)
        assert time.monotonic() < until
    page.open(f"{site.address}/c/local/topics/drawn")
    page.wait_for("document.querySelectorAll('.chart path.line').length >= 2")
    assert "Records per second" in page.run("document.querySelector('.chart svg').getAttribute('aria-label')")
    newest = page.run("document.querySelector('.chart .newest').textContent")
    assert newest.endswith("/s")
    page.run(
        "(() => { const plot = document.querySelector('.chart svg'); const at = plot.getBoundingClientRect();"
        " plot.dispatchEvent(new PointerEvent('pointermove', {clientX: at.left + 60})); })()"
    )
    assert page.run("document.querySelector('.chart .when').textContent").count(":") == 2


def test_live_records_come_without_end_and_without_growing(
    page: Browser, site: Site, broker: InProcessBroker
) -> None:
    site.change("POST", "topics", name="stream", partitions=1)
    page.open(f"{site.address}/c/local/topics/stream/records")
    page.click("[data-stream=tail]")
    page.wait_for("document.querySelector('#progress').textContent.includes('live')")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    until = time.monotonic() + 60
    sent = 0
    # Far more than anybody can read: the page has the newest, and says how many it left out.
    while not page.run("document.querySelector('#progress').textContent.includes('too many')"):
        assert time.monotonic() < until
        for _ in range(5000):
            producer.produce("stream", f"value {sent}")
            sent += 1
        assert producer.flush(60) == 0
    producer.produce("stream", "the last one")
    assert producer.flush(60) == 0
    page.wait_for("document.querySelector('#records').innerText.includes('the last one')")
    assert rows(page) <= 500
    page.click("[data-stop]")
    page.wait_for("document.querySelector('#progress').textContent.includes('stopped')")


def test_a_search_that_the_console_does_not_finish_shows_nothing_twice(
    page: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.change("POST", "topics", name="cut-off", partitions=1)
    site.change("POST", "topics", "cut-off", "records", value="x", repeat=7)

    async def dying(*asked: Any) -> AsyncIterator[Any]:
        async for step in walk(*asked):
            yield step
            if step.found:
                raise RuntimeError("a console that ends here")

    page.open(f"{site.address}/c/local/topics/cut-off/records")
    page.wait_for("document.querySelector('#progress').textContent.includes('7 records')")
    monkeypatch.setattr("ottla.console.api.records.walk", dying)
    page.click("[data-stream=search]")
    page.wait_for("document.querySelector('#progress.bad')?.textContent.includes('was lost')")
    page.wait_for("document.querySelectorAll('#records .record').length === 7")
    assert page.run("document.querySelector('[data-stop]').hidden")
    assert all("INCOMPLETE_CHUNKED" in each for each in page.complaints)
    page.complaints.clear()


def test_nothing_that_others_wrote_is_taken_for_markup(
    page: Browser, site: Site, broker: InProcessBroker
) -> None:
    any_time = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    site.change("POST", "topics", name="hostile", partitions=1, settings=any_time)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("hostile", EVIL, EVIL, headers={EVIL: EVIL})
    producer.produce("hostile", json.dumps({EVIL: EVIL}), EVIL, timestamp=1 << 60)
    assert producer.flush(60) == 0
    site.change(
        "PATCH", "topics", "hostile", "settings", set={"follower.replication.throttled.replicas": "*"}
    )
    rule = {"principal": f"User:{EVIL}", "operation": "READ", "resource": "TOPIC", "name": EVIL}
    site.change("POST", "acls", **rule)
    site.change("PUT", "quotas", quota="producer_byte_rate", value=1, client_id=EVIL)
    site.change("PUT", "users", EVIL, password="secret")
    transactional = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": EVIL})
    transactional.init_transactions(60)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": EVIL,
            "client.id": EVIL,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["hostile"])
    try:
        until = time.monotonic() + 60
        while (message := consumer.poll(0.5)) is None or message.error():
            assert time.monotonic() < until
        consumer.commit(asynchronous=False)
        pages = [
            site.page_path(*segments)
            for segments in (
                (),
                ("topics",),
                ("topics", "hostile"),
                ("groups",),
                ("groups", EVIL),
                ("transactions",),
                ("transactions", EVIL),
                ("acls",),
                ("users",),
                ("quotas",),
            )
        ]
        pages += [
            f"{site.page_path('topics', 'hostile')}?part=consumers",
            f"{site.page_path('topics', 'hostile')}?part=settings",
            f"{site.page_path('acls')}?q=%3Cscript%3Ewindow.hacked%3D1%3C/script%3E",
        ]
        shown = ""
        for path in pages:
            page.open(site.address + path)
            shown += page.text()
            if page.run("!!document.querySelector('#results [data-opens=remove]')"):
                # What is to be typed is put in by the script.
                page.click("#results [data-opens=remove]")
                assert "to confirm" in page.run("document.querySelector('#remove').innerText")
            assert page.run("window.hacked") is None, path
        with answering(EVIL_APPLICATION) as (url, _):
            odd = Announcement("evil", url, EVIL, 1, 1)
            tell(broker.bootstrap_servers, odd)
            for path in (site.page_path("pipelines"), site.page_path("pipelines", "evil")):
                page.open(site.address + path)
                shown += page.text()
                assert page.run("window.hacked") is None, path
            assert page.run("!!document.querySelector('svg.topology')")
            tell(broker.bootstrap_servers, odd, gone=True)
        page.open(site.address + site.page_path("topics", "hostile", "records"))
        page.wait_for("document.querySelectorAll('#records .record').length === 2")
        page.run("document.querySelectorAll('#records summary').forEach((each) => each.click())")
        page.wait_for("document.querySelectorAll('.record[open] .whole').length === 2")
        shown += page.text()
        assert page.run("window.hacked") is None
        # It was there to be seen, as the text that it is.
        assert shown.count("window.hacked=1") > 10
        # Names of what is missing come back in answers, too; the page for that is a refusal, which is noted.
        page.open(f"{site.address}/c/local/topics/%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E")
        assert "onerror" in page.text() and page.run("window.hacked") is None
        assert len(page.complaints) == 1 and "400" in page.complaints.pop()
    finally:
        consumer.close()
        site.change("DELETE", "acls", **rule, confirm=rule["principal"])
        quota = "producer_byte_rate"
        site.change("DELETE", "quotas", quota=quota, client_id=EVIL, confirm=quota)
        site.change("DELETE", "users", EVIL, mechanism="SCRAM-SHA-512", confirm=EVIL)


def test_a_page_of_another_site_can_do_nothing(page: Browser, site: Site) -> None:
    """Another name of the same machine is another site to a browser."""
    page.open(f"{site.address}/c/local")  # the browser has a cookie of the console now
    other = site.address.replace("127.0.0.1", "localhost")
    page.open(f"{other}/c/local")
    target = json.dumps(f"{site.address}/api/clusters/local/topics")
    for kind in ("text/plain", "application/json"):
        outcome = page.run(
            f"fetch({target}, {{method: 'POST', credentials: 'include', body: '{{\"name\": \"forged\"}}',"
            f" headers: {{'content-type': '{kind}'}}}}).then(() => 'answered', () => 'refused')"
        )
        assert outcome == "refused"
    assert site.get("topics", q="forged")["total"] == 0
    page.complaints.clear()
