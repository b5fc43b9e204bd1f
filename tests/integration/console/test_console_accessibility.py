"""Every page of the console, light and dark, as an automatic checker of accessibility sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import screenshots
from accessible import axe_core, faults
from bench.chromium import Browser, browser, executable
from confluent_kafka import Producer
from connect.worker_process import our_worker, settings_of
from console_site import Site
from share_members import member_of
from test_console_pipelines import answering, tell
from tour import COUNTS

from ottla.client.applications import Announcement
from ottla.console.clusters import ClusterSettings
from ottla.console.pages.all import PAGES as ALL_PAGES
from ottla.console.server import console_served
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")

GUIDE = Path(__file__).parents[3] / "docs/guides/console.md"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
PAGES = (
    "",
    "/brokers/1",
    "/topics",
    "/topics/orders",
    "/topics/orders?part=settings",
    "/topics/orders?part=consumers",
    "/topics/orders/records?limit=5",
    "/groups",
    "/groups/billing",
    "/groups/sharers",
    "/transactions",
    "/transactions/left-open",
    "/balance",
    "/connectors",
    "/connectors/copy",
    "/connector-plugins",
    f"/connector-plugins/{SINK}",
    "/pipelines",
    "/pipelines/counts",
    "/acls",
    "/users",
    "/quotas",
    "/tokens",
)


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    axe_core()
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def full_site(broker: InProcessBroker) -> Iterator[Site]:
    with our_worker(settings_of(broker.bootstrap_servers)) as worker:
        settings = [
            ClusterSettings(
                "local", broker.bootstrap_servers, connect=f"http://{worker.address}", sample_s=1.0
            ),
            ClusterSettings("closed", broker.bootstrap_servers, login=True),
        ]
        with console_served(settings) as address:
            site = Site(address).log_in()
            config = {"connector.class": SINK, "topics": "orders", "file": "/nowhere/at/all"}
            site.change("PUT", "connectors", "copy", set=config)
            rule = {"principal": "User:frank", "operation": "READ", "resource": "TOPIC", "name": "orders"}
            site.change("POST", "acls", **rule)
            with something_of_everything(broker):
                yield site
            site.change("DELETE", "acls", **rule, confirm="User:frank")
            site.change("DELETE", "connectors", "copy", confirm="copy")


@contextmanager
def something_of_everything(broker: InProcessBroker) -> Iterator[None]:
    """A share group with a member, an open transaction, a pipeline with a topology."""
    bootstrap = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "left-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("payments", "not yet")
    assert producer.flush(60) == 0
    with (
        member_of(bootstrap, "sharers", "orders", client_id="a-sharer"),
        answering(COUNTS) as (url, _),
    ):
        counts = Announcement("counts", url, "here", 4711, 1)
        tell(bootstrap, counts)
        yield
        tell(bootstrap, counts, gone=True)
    producer.abort_transaction(60)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_checker_finds_nothing_wrong(window: Browser, full_site: Site, theme: str) -> None:
    window.prefer(theme)
    found = {}
    dialogs: set[str] = set()
    for path in (*(f"/c/local{page}" for page in PAGES), "/api", "/login?cluster=closed"):
        window.open(full_site.address + path)
        if "/records" in path:
            window.wait_for("document.querySelectorAll('.record').length === 5")
            window.click(".record summary")
            window.wait_for("document.querySelector('.record[open] pre')")
        if faulty := faults(window):
            found[path] = faulty
        if theme == "dark":
            continue
        section = path.removeprefix("/c/local").partition("/")[2].partition("/")[0]
        for name in window.run("[...document.querySelectorAll('dialog')].map((each) => each.id)"):
            # Each is looked at once, and in one theme: what they are made of is on pages, too.
            if (known := name if name == "keys" else f"{section} {name}") in dialogs:
                continue
            dialogs.add(known)
            window.run(f"document.getElementById({name!r}).showModal()")
            if faulty := faults(window):
                found[f"{path} {name}"] = faulty
            window.run(f"document.getElementById({name!r}).close()")
    assert found == {}
    assert len(dialogs) > 15 or theme == "dark"


def left_out(pages: Iterable[str]) -> list[str]:
    patterns = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each.path)) for each in ALL_PAGES]
    asked = [page.partition("?")[0] for page in pages]
    return [pattern for pattern in patterns if not any(re.fullmatch(pattern, each) for each in asked)]


def test_every_page_is_looked_at() -> None:
    assert left_out(PAGES) == []


def test_every_page_is_pictured_in_the_guide_light_and_dark() -> None:
    assert left_out([*screenshots.PAGES.values(), "/tokens"]) == []
    guide = GUIDE.read_text()
    for name in (*screenshots.PAGES, *screenshots.BESIDE):
        picture = f"(console/{name}-light.png)](console/{name}-dark.png)"
        assert picture in guide, name
        for theme in ("light", "dark"):
            assert (GUIDE.parent / "console" / f"{name}-{theme}.png").stat().st_size, name


def test_dialogs_are_reached_and_left_by_keys(window: Browser, full_site: Site) -> None:
    window.open(f"{full_site.address}/c/local/topics")
    window.click("[data-opens=create]")
    window.wait_for("document.activeElement.name === 'name'")
    assert faults(window) == []
    window.press("Escape")
    window.wait_for("!document.querySelector('#create').open")
