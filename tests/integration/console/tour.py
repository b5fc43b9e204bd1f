"""Every page of the console and every action on them, as a person goes through them in a browser.

Steps look only at what the page says, and at the cluster where a page could be wrong about it. They are the
same for Ottla and for Apache Kafka, whose brokers hear of a change some time after it was answered.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.chromium import Browser
from confluent_kafka import Consumer, Producer
from console_site import ORDERS, Site, commit, create
from share_members import member_of
from test_console_pipelines import answering, tell
from transactions_seen import OUTCOMES, records_of_every_outcome

from ottla.client.applications import Announcement
from ottla.console.pages.all import PAGES

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
DEADLINE_S = 60.0
_NODE = {"query": "q", "stores": [], "dropped": {}, "failed": {}, "records": 7}
COUNTS = {
    "applicationId": "counts",
    "state": "RUNNING",
    "queries": [
        {
            "query": "q",
            "kind": "stateless",
            "topics": ["orders"],
            "state": "running",
            "restarts": 0,
            "failure": None,
            "batches": 12,
            "lag": 34,
            "lastBatch": {"rowsPerSecond": 5210.0, "durationMs": 180},
        }
    ],
    "nodes": [
        {**_NODE, "name": "SOURCE", "type": "source", "topics": ["orders"], "children": ["SINK"]},
        {**_NODE, "name": "SINK", "type": "sink", "topics": ["payments"], "children": []},
    ],
    "stores": [],
}
"""What a Streams application says of itself."""


@dataclass
class Tour:
    page: Browser
    site: Site
    bootstrap: str
    brokers: int
    connect_tells_its_log: bool
    looked_at: set[str] = field(default_factory=set)

    def open(self, path: str, there: str = "document.querySelector('h1')") -> None:
        """Again and again until it shows what it should."""
        settle(self.page)
        address = f"{self.site.address}/c/{self.site.cluster}{path}"
        for within_s in (0.5, 1, 2, 4, 8, 16, DEADLINE_S):
            self.page.open(address)
            self._note()
            try:
                self.page.wait_for(there, within_s)
            except AssertionError:
                if within_s == DEADLINE_S:
                    raise
            else:
                # What was not there yet is no complaint.
                self.page.complaints[:] = [each for each in self.page.complaints if "404" not in each]
                return

    def arrive(self, path: str) -> None:
        """A click leads there."""
        where = json.dumps(f"/c/{self.site.cluster}{path}")
        self.page.wait_for(f"location.pathname === {where} && document.readyState === 'complete'")
        self._note()

    def says(self, selector: str, text: str) -> None:
        selected, wanted = json.dumps(selector), json.dumps(text)
        self.page.wait_for(f"document.querySelector({selected})?.innerText.includes({wanted})")

    def send(self, form: str, **fields: str) -> None:
        for name, value in fields.items():
            self.page.fill(f"{form} [name={json.dumps(name)}]", value)
        self.page.click(f"{form} [type=submit]")

    def type_to_confirm(self, dialog: str, name: str) -> None:
        """After another name was refused."""
        self.send(dialog, confirm=f"not {name}")
        self.says(f"{dialog} .answer.bad", "to confirm")
        self.page.complaints[:] = [each for each in self.page.complaints if "400" not in each]
        self.send(dialog, confirm=name)

    def _note(self) -> None:
        path = urlsplit(str(self.page.run("location.href"))).path
        self.looked_at |= {each.path for each in PAGES if _leads(self.site.cluster, each.path, path)}


def settle(page: Browser) -> None:
    """What was asked for is answered: whoever leaves earlier may take it back."""
    page.wait_for("!document.querySelector('form[aria-busy]')")


def _leads(cluster: str, pattern: str, path: str) -> bool:
    parts = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(f"/c/{cluster}{pattern}"))
    return re.fullmatch(parts, path) is not None


@contextmanager
def load(bootstrap: str, replicas: int) -> Iterator[None]:
    """Records that come and are read, by a group of consumers and one of sharers, all the time."""
    create(bootstrap, {"load": 6}, replicas)
    over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10, "compression.type": "lz4"})
        number = 0
        while not over.wait(0.02):
            for _ in range(60):
                number += 1
                producer.produce("load", f'{{"number": {number}}}', f"key-{number % 1000}")
            producer.poll(0)
        producer.flush(30)

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "load-readers",
                "client.id": "a-reader",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe(["load"])
        while not over.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    threads = [threading.Thread(target=work) for work in (write, read)]
    for each in threads:
        each.start()
    try:
        with member_of(bootstrap, "load-sharers", "load", client_id="a-sharer"):
            yield
    finally:
        over.set()
        for each in threads:
            each.join()


def overview(tour: Tour) -> None:
    page = tour.page
    tour.open("", "document.querySelectorAll('.chart path.line').length >= 2")
    assert "Metadata quorum" in page.text()
    # What the load writes is seen in the chart.
    page.wait_for("/[1-9].*\\/s/.test(document.querySelector('.chart .newest')?.textContent)")
    tour.open("/brokers/1", "document.querySelector('.setting')")
    setting = ".setting[data-text='log.retention.ms']"
    tour.send(setting, **{"set.log.retention.ms": "604800001"})
    page.wait_for("document.readyState === 'complete'")
    tour.open("/brokers/1", f'document.querySelector("{setting}")?.innerText.includes("604800001")')
    page.click(f"{setting} [name=delete]")
    page.wait_for("document.readyState === 'complete'")
    tour.open("/brokers/1", f'document.querySelector("{setting}")?.innerText.includes("604800001") === false')


def topics(tour: Tour) -> None:
    page = tour.page
    tour.open("/topics", "document.querySelector('tbody tr')")
    page.click("thead a[href*='sort=size']")
    page.wait_for("document.querySelector('th[aria-sort=descending]')?.innerText.includes('Size')")
    page.click("[data-opens=create]")
    tour.send("#create", name="bad name")
    tour.says("#create .answer.bad", "bad name")
    page.complaints.clear()  # the browser notes each refusal
    tour.send(
        "#create", name="made.here", partitions="2", settings="retention.ms=1000\ncleanup.policy=delete"
    )
    tour.arrive("/topics/made.here")
    tour.open("/topics/made.here", "document.querySelectorAll('.replicas td.leads').length === 2")

    page.click("[data-opens=grow]")
    tour.send("#grow", count="5")
    tour.open("/topics/made.here", "document.querySelectorAll('.replicas td.leads').length === 5")
    assert page.run("document.querySelectorAll('.replicas tbody tr').length") == tour.brokers

    settings, retention = "/topics/made.here?part=settings", ".setting[data-text='retention.ms']"
    tour.open(settings)
    page.fill("[data-filters]", "retention.ms")
    assert page.run("[...document.querySelectorAll('.setting')].filter((each) => !each.hidden).length") == 3
    tour.send(retention, **{"set.retention.ms": "7777"})
    tour.open(settings, f'document.querySelector("{retention}").innerText.includes("7777")')
    page.click(f"{retention} [name=delete]")
    tour.open(settings, f'document.querySelector("{retention}").innerText.includes("604800000")')
    tour.open(
        "/topics/orders?part=consumers", "document.querySelector('tbody')?.innerText.includes('billing')"
    )

    tour.site.change("POST", "topics", "made.here", "records", value="x", repeat=20, partition=0)
    tour.open("/topics/made.here", "document.querySelector('.figures').innerText.includes('20')")
    page.click("[data-opens=empty]")
    tour.type_to_confirm("#empty", "made.here")
    tour.open("/topics/made.here", "document.querySelector('.figures').innerText.includes('20') === false")

    tour.open("/topics")
    page.fill("[data-search]", "made.h")
    page.wait_for("location.search.includes('made.h') && document.querySelectorAll('tbody tr').length === 1")
    page.press("j")
    tour.open("/topics/made.here")
    page.click("[data-opens=delete]")
    tour.type_to_confirm("#delete", "made.here")
    tour.arrive("/topics")


def records(tour: Tour) -> None:
    page = tour.page
    count = "document.querySelectorAll('#records .record').length"
    tour.open("/topics/orders/records?limit=20", f"{count} === 20")
    page.click("#records .record summary")
    page.wait_for("document.querySelector('.record[open] pre')")
    assert "source" in page.run("document.querySelector('.record[open]').innerText")
    page.click("#more a")
    page.wait_for(f"location.search.includes('cursor') && {count} === 20")

    tour.open(
        "/topics/orders/records?key=customer-3&start=oldest&limit=1000",
        f"{count} === {len(range(3, ORDERS, 7))}",
    )
    page.fill("form.find [name=key]", "")
    page.fill("form.find [name=path]", "$.order = 42")
    page.click("[data-stream=search]")
    tour.says("#progress", "1 found in")
    # Rows are put in with the next frame.
    page.wait_for(f"{count} === 1")
    page.fill("form.find [name=path]", "")
    page.fill("form.find [name=where]", "$.order = 42 or $.order = 43 and not key ~ 'customer'")
    page.click("[data-stream=search]")
    tour.says("#progress", "1 found in")
    page.wait_for(f"{count} === 1")
    for kind, begins in (("jsonl", '{"partition"'), ("csv", "partition,offset"), ("parquet", "PAR1")):
        # Not to be saved by the browser, but read here.
        address = page.run(
            f"(() => {{ const link = document.querySelector('[data-export={kind}]');"
            " link.addEventListener('click', (event) => event.preventDefault(), {once: true});"
            " link.click(); return link.href; })()"
        )
        saved = str(page.run(f"fetch({json.dumps(address)}).then((answer) => answer.text())"))
        assert saved.startswith(begins) and ("customer-0" in saved or kind == "parquet")

    tour.open("/topics/payments/records")
    page.click("[data-opens=produce]")
    tour.send("#produce", key="k", value='{"large": 12345678901234567890}', headers="a=b")
    tour.says("#produce .answer.good", "offset")
    page.click("#produce [data-closes]")
    page.wait_for("document.querySelector('#records .record')")
    page.click("#records .record summary")
    # A number that no JavaScript can hold is shown as it was written.
    tour.says(".record[open]", "12345678901234567890")

    tour.open("/topics/load/records")
    page.click("[data-stream=tail]")
    page.wait_for(f"{count} > 60")
    page.click("[data-stop]")
    tour.says("#progress", "stopped")


def outcomes(tour: Tour) -> None:
    page = tour.page
    create(tour.bootstrap, {"books": 1})
    with records_of_every_outcome(tour.bootstrap, "books"):
        shown = "document.querySelectorAll('#records .record')"
        tour.open("/topics/books/records?committed=false&start=oldest", f"{shown}.length === {len(OUTCOMES)}")
        lines = page.run(f"[...{shown}].map((each) => each.innerText.split('\\n').at(-1))")
        told = [each if each in {"aborted", "open"} else "" for each in OUTCOMES.values()]
        assert [each.removesuffix(value).strip() for each, value in zip(lines, OUTCOMES, strict=True)] == told
        page.click("#records .record summary")
        tour.says(".record[open]", "transaction committed")


def transactions(tour: Tour) -> None:
    page = tour.page
    producer = Producer({"bootstrap.servers": tour.bootstrap, "transactional.id": "left-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("payments", "never seen")
    assert producer.flush(60) == 0
    tour.open("/transactions?open=true", "document.querySelector('#results').innerText.includes('left-open')")
    page.click("tbody a")
    tour.arrive("/transactions/left-open")
    tour.says("main", "payments")
    page.click("[data-opens=abort]")
    tour.type_to_confirm("#abort", "left-open")
    tour.open("/transactions/left-open", "!document.querySelector('[data-opens=abort]')")
    assert "Ongoing" not in page.text()


def groups(tour: Tour) -> None:
    page, site = tour.page, tour.site
    tour.open("/groups/load-readers", "document.querySelectorAll('.chart path.line').length >= 2")
    assert "a-reader" in page.text()
    assert page.run("document.querySelectorAll('tbody .chip').length") == 6
    # Who reads what is drawn: all six in the row of the one reader.
    assert page.run("document.querySelectorAll('.replicas tbody tr:only-child td.held').length") == 6
    commit(tour.bootstrap, "shipping", "orders", 3)
    tour.open("/groups?q=shipping", "document.querySelector('tbody a')")
    page.click("thead a[href*='sort=lag']")
    page.wait_for("document.querySelector('th[aria-sort=descending]')?.innerText.includes('Lag')")
    page.click("tbody a")
    tour.arrive("/groups/shipping")
    page.click("[data-opens=reset]")
    tour.send("#reset", to="earliest", topic="orders")
    tour.says("#reset .answer.good", "orders-0: 1 → 0")
    assert site.get("groups", "shipping")["partitions"][0]["offset"] == 1
    page.run("document.querySelector('#reset [name=preview]').checked = false")
    page.click("#reset [type=submit]")
    tour.says("#reset .answer.good", "Done")
    assert site.get("groups", "shipping")["partitions"][0]["offset"] == 0
    page.click("#reset [data-closes]")
    page.click("[data-opens=delete]")
    tour.type_to_confirm("#delete", "shipping")
    tour.arrive("/groups")


def share_groups(tour: Tour) -> None:
    page = tour.page
    chips = "document.querySelectorAll('tbody .chip').length"
    tour.open("/groups/load-sharers", f"{chips} === 6 && document.querySelector('.chart')")
    assert "a-sharer" in page.text() and "Share group" in page.text()
    with member_of(tour.bootstrap, "sharers", "orders", client_id="for-a-moment"):
        tour.open(
            "/groups/sharers",
            "document.querySelector('tbody .chip')"
            " && document.querySelector('tbody').innerText.includes('for-a-moment')"
            " && document.querySelector('.replicas td.held')",
        )
    tour.open("/groups/sharers", "document.querySelector('[data-opens=reset]')")
    page.click("[data-opens=reset]")
    page.run("document.querySelector('#reset [name=preview]').checked = false")
    tour.send("#reset", to="earliest", topic="orders")
    tour.says("#reset .answer.good", "Done")
    page.click("#reset [data-closes]")
    page.click("[data-opens=delete]")
    tour.type_to_confirm("#delete", "sharers")
    tour.arrive("/groups")


def balance(tour: Tour) -> None:
    page, site = tour.page, tour.site
    create(tour.bootstrap, {"clicks": 2}, min(2, tour.brokers))
    tour.open("/balance", "document.querySelectorAll('.spread tbody tr').length > 0")
    page.fill("form.panel [name=topics]", "clicks")
    kept = [each["replicas"] for each in site.get("topics", "clicks")["partitions"]]
    if tour.brokers > 1:
        gone = kept[0][0]
        page.click(f"form.panel [name=brokers][value='{gone}']")
        page.click("form.panel [type=submit]")
        page.wait_for("document.querySelectorAll('#plan td.comes').length > 0")
        assert [each["replicas"] for each in site.get("topics", "clicks")["partitions"]] == kept
        page.click("#plan button")
        page.wait_for("!document.querySelector('#plan button') && document.querySelector('#results')")
        until = time.monotonic() + DEADLINE_S
        while any(gone in each["replicas"] for each in site.get("topics", "clicks")["partitions"]):
            assert time.monotonic() < until
        tour.says("#results", "Nothing is being moved")
    else:
        page.click("form.panel [type=submit]")
        tour.says("#plan", "Nothing has to move")
        # The one broker there is may be told so all the same.
        site.change("POST", "reassignments", plan={"clicks-0": kept[0]})
    page.click("[data-opens=prefer]")
    page.click("#prefer [type=submit]")
    page.wait_for("!document.querySelector('#prefer').open")
    page.click("[data-opens=unclean]")
    tour.send("#unclean", topics="clicks", confirm="no")
    tour.says("#unclean .answer.bad", "lose records")
    page.complaints.clear()
    tour.send("#unclean", topics="clicks", confirm="lose records")
    page.wait_for("document.querySelector('#unclean') && !document.querySelector('#unclean').open")


def connectors(tour: Tour, file: str) -> None:
    page = tour.page
    tour.open("/connector-plugins", f"document.querySelector(\"a.card[href$='{SINK}']\")")
    page.click(f"a.card[href$='{SINK}']")
    tour.arrive(f"/connector-plugins/{SINK}")
    page.fill("[name=connector]", "to-a-file")
    page.fill("[name='set.tasks.max']", "many")
    page.click("button[data-then=check]")
    page.wait_for("document.querySelectorAll('.wrong').length > 0")
    text = "org.apache.kafka.connect.storage.StringConverter"
    for name, value in {
        "tasks.max": "1",
        "topics": "orders",
        "file": file,
        "key.converter": text,
        "value.converter": text,
    }.items():
        page.fill(f"[name='set.{name}']", value)
    page.click("button[data-then=check]")
    tour.says(".answer.good", "Nothing is wrong")
    page.click("form.panel .buttons button:last-child")
    tour.arrive("/connectors/to-a-file")
    tour.open("/connectors/to-a-file", "document.querySelector('#results')?.innerText.includes('1 of 1')")
    log = "task to-a-file-0 starts" if tour.connect_tells_its_log else "do not tell what they log"
    tour.says("#results", log)
    tour.open("/connectors/to-a-file", "document.querySelector('ul.names')?.innerText.includes('orders')")
    page.click("tbody [data-action$='/tasks/0/restart'] button")
    page.wait_for("document.readyState === 'complete'")
    here, running = (
        "/connectors/to-a-file",
        "document.querySelector('#results')?.innerText.includes('1 of 1')",
    )
    for action, then in (("restart", running), ("pause", "PAUSED"), ("resume", running)):
        there = (
            then if then is running else f"document.querySelector('.figures')?.innerText.includes('{then}')"
        )
        tour.open(here, f"document.querySelector(\"[data-action$='to-a-file/{action}'] button\")")
        page.click(f"[data-action$='to-a-file/{action}'] button")
        tour.open(here, there)
    setting = ".setting[data-text='tasks.max']"
    tour.send(setting, **{"set.tasks.max": "2"})
    tour.open(here, f"document.querySelector(\"{setting} .setting-value\")?.innerText === '2'")
    tour.open(here, "document.querySelector(\"[data-action$='to-a-file/stop'] button\")")
    page.click("[data-action$='to-a-file/stop'] button")
    tour.open(here, "document.querySelector('.figures')?.innerText.includes('STOPPED')")
    page.click("[data-opens=forget]")
    tour.type_to_confirm("#forget", "to-a-file")
    settle(page)
    until = time.monotonic() + 60
    # A worker of Apache Kafka refuses for a moment, and says that it may be asked again.
    while page.run("!!document.querySelector('#forget .answer.bad')?.innerText.includes('safely retried')"):
        assert time.monotonic() < until
        tour.send("#forget", confirm="to-a-file")
        settle(page)
        page.complaints[:] = [each for each in page.complaints if "500" not in each]
    tour.open(here, "!document.querySelector('#forget').open")
    tour.open("/connectors", "document.querySelector('tbody')?.innerText.includes('to-a-file')")
    page.click("tbody a")
    tour.arrive(here)
    page.click("[data-opens=delete]")
    tour.type_to_confirm("#delete", "to-a-file")
    tour.arrive("/connectors")


def pipelines(tour: Tour) -> None:
    with answering(COUNTS) as (url, _):
        announced = Announcement("counts", url, "here", 4711, 1)
        tell(tour.bootstrap, announced)
        tour.open("/pipelines", "document.querySelector('tbody a')")
        tour.page.click("tbody a")
        tour.arrive("/pipelines/counts")
        tour.says("main", "5\u2009210")
        tour.page.run(
            "document.querySelector('svg.topology a').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        tour.arrive("/topics/orders")
        tell(tour.bootstrap, announced, gone=True)


def access(tour: Tour) -> None:
    page = tour.page
    for path, fields, text in (
        ("acls", {"principal": "User:mallory", "name": "orders"}, "User:mallory"),
        ("users", {"user": "trudy", "password": "secret"}, "trudy"),
        ("quotas", {"value": "1000", "client_id": "app"}, "producer_byte_rate"),
    ):
        tour.open(f"/{path}")
        page.click("[data-opens=add]")
        tour.send("#add", **fields)
        has = f"document.querySelector('#results')?.innerText.includes({json.dumps(text)})"
        tour.open(f"/{path}", f"document.querySelector('#results [data-opens=remove]') && {has}")
        page.click("#results [data-opens=remove]")
        assert f"Type {text} to confirm" in page.run("document.querySelector('#remove').innerText")
        tour.type_to_confirm("#remove", text)
        tour.open(f"/{path}", f"document.querySelector('#results') && !{has}")


def tokens(page: Browser, address: str) -> None:
    """Where people log in: nobody has tokens elsewhere. It begins at the page that asks who one is."""
    page.command("Page.navigate", url=f"{address}/c/local/tokens")
    page.wait_for("location.pathname === '/login' && document.readyState === 'complete'")
    page.fill("[name=user]", "alice")
    page.fill("[name=password]", "wrong")
    page.fill("[name=mechanism]", "PLAIN")
    page.click("form.login [type=submit]")
    page.wait_for("document.querySelector('.answer.bad')?.innerText.includes('alice')")
    page.complaints.clear()
    page.fill("[name=password]", "a-secret")
    page.click("form.login [type=submit]")
    # Where one wanted to go in the first place.
    page.wait_for("location.pathname === '/c/local/tokens' && document.readyState === 'complete'")
    page.click("[data-opens=add]")
    page.fill("#add [name=renewers]", "User:bob")
    page.click("#add [type=submit]")
    page.wait_for("document.querySelector('#add .answer.good')?.innerText.includes('hmac')")
    shown = "document.querySelector('#results tbody')?.innerText.includes('User:bob')"
    until = time.monotonic() + DEADLINE_S
    while page.open(f"{address}/c/local/tokens") or not page.run(f"!!({shown})"):
        # Apache Kafka's brokers hear of it some time after it was answered.
        assert time.monotonic() < until
    table = "document.querySelector('.table')"
    assert page.run(f"{table}.scrollWidth <= {table}.clientWidth")  # with what ends a token in sight
    expires = "document.querySelector('tbody td:nth-child(5)')?.innerText"
    before = page.run(expires)
    page.click("tbody form.inline button")
    settle(page)
    # By a day from now, not from when it was made.
    while page.open(f"{address}/c/local/tokens") or page.run(expires) == before:
        assert time.monotonic() < until
    name = str(page.run("document.querySelector('tbody code').innerText"))
    page.click("[data-opens=remove]")
    page.fill("#remove [name=confirm]", "some token")
    page.click("#remove [type=submit]")
    page.wait_for("document.querySelector('#remove .answer.bad')?.innerText.includes('to confirm')")
    page.complaints.clear()
    page.fill("#remove [name=confirm]", name)
    page.click("#remove [type=submit]")
    settle(page)
    while page.open(f"{address}/c/local/tokens") or page.run(f"!!({shown})"):
        assert time.monotonic() < until
    page.click("header form.inline button")
    page.wait_for("location.pathname === '/login'")


def unwell(tour: Tour, lost: Any) -> None:
    """A broker is lost: the overview says so, and a move to it waits until it is called off."""
    page, site = tour.page, tour.site
    lost.stop()
    tour.open("", "document.querySelector('main').innerText.includes('What needs attention')")
    site.change("POST", "reassignments", plan={"clicks-0": [lost.id]})
    tour.open("/balance", "document.querySelector('#results [data-opens=remove]')")
    page.click("#results [data-opens=remove]")
    tour.type_to_confirm("#remove", "clicks-0")
    tour.open("/balance", "document.querySelector('#results')?.innerText.includes('Nothing is being moved')")
