"""Every page of the console, light and dark, as an automatic checker of accessibility sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accessible import axe_core, faults
from bench.chromium import Browser, browser, executable
from connect.worker_process import our_worker, settings_of
from console_site import Site

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")

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
    "/transactions",
    "/balance",
    "/connectors",
    "/connectors/copy",
    "/connector-plugins",
    f"/connector-plugins/{SINK}",
    "/pipelines",
    "/acls",
    "/users",
    "/quotas",
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
            yield site
            site.change("DELETE", "connectors", "copy", confirm="copy")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_checker_finds_nothing_wrong(window: Browser, full_site: Site, theme: str) -> None:
    window.prefer(theme)
    found = {}
    for path in (*(f"/c/local{page}" for page in PAGES), "/api", "/login?cluster=closed"):
        window.open(full_site.address + path)
        if "/records" in path:
            window.wait_for("document.querySelectorAll('.record').length === 5")
        if faulty := faults(window):
            found[path] = faulty
    assert found == {}


def test_dialogs_are_reached_and_left_by_keys(window: Browser, full_site: Site) -> None:
    window.open(f"{full_site.address}/c/local/topics")
    window.click("[data-opens=create]")
    window.wait_for("document.activeElement.name === 'name'")
    assert faults(window) == []
    window.press("Escape")
    window.wait_for("!document.querySelector('#create').open")
