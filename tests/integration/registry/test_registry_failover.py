"""Several registries on one topic: any of them may be asked, and the one that writes may be lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest
from registry_process import RegistryProcess, avro

from ottla.testing.in_process import InProcessBroker

LEADS = "this registry leads"

pytestmark = [pytest.mark.xdist_group("registry"), pytest.mark.timeout(240)]


@pytest.fixture
def registries(cluster: InProcessBroker, request: pytest.FixtureRequest) -> Iterator[list[RegistryProcess]]:
    """Three; the first one leads."""
    name = request.node.name
    options = ("--topic", f"_{name}", "--group", name, "--session-timeout-ms", "2000")
    with ExitStack() as stack:
        running = [stack.enter_context(RegistryProcess(cluster.bootstrap_servers, *options))]
        others = [RegistryProcess(cluster.bootstrap_servers, *options) for _ in range(2)]
        running += [stack.enter_context(other) for other in others]
        yield running


class Clients:
    """Threads that register one new schema after the other until they are told to end."""

    def __init__(self, registries: list[RegistryProcess]) -> None:
        self._end = threading.Event()
        self.given: list[tuple[str, int]] = []
        self.changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._register, args=(number, registry))
            for number, registry in enumerate(registries)
        ]
        for thread in self._threads:
            thread.start()

    def _register(self, client: int, registry: RegistryProcess) -> None:
        for number in count():
            if self._end.is_set():
                return
            name = f"Of{client}No{number}"
            while not self._end.is_set():
                # Again with the same schema until it is acknowledged, as every client does.
                try:
                    status, told = registry.call(
                        "POST", f"/subjects/{name}/versions", avro("a", name=name), timeout_s=5
                    )
                except OSError:
                    continue
                if status == 200:
                    with self.changed:
                        self.given.append((name, told["id"]))
                        self.changed.notify_all()
                    break

    def wait_for(self, more: int) -> None:
        with self.changed:
            wanted = len(self.given) + more
            assert self.changed.wait_for(lambda: len(self.given) >= wanted, 120)

    def end(self) -> list[tuple[str, int]]:
        self._end.set()
        for thread in self._threads:
            thread.join()
        return self.given


def stored(registry: RegistryProcess) -> dict[str, int]:
    _, schemas = registry.call("GET", "/schemas")
    return {schema["subject"]: schema["id"] for schema in schemas}


def check_nothing_is_lost(given: list[tuple[str, int]], registries: list[RegistryProcess]) -> None:
    for registry in registries:
        # Asking for what is not there makes a registry read to the end of the topic.
        registry.call("GET", "/subjects/nobody/versions")
        kept = stored(registry)
        assert {name: kept.get(name) for name, _ in given} == dict(given)
        assert len(set(kept.values())) == len(kept), "an id was given twice"


def leader_among(registries: list[RegistryProcess]) -> RegistryProcess:
    while True:  # the test's time-out is the limit
        for registry in registries:
            if LEADS in registry.log:
                return registry
        time.sleep(0.05)


def test_any_may_be_asked_and_one_that_stops_is_replaced_at_once(registries: list[RegistryProcess]) -> None:
    leader, follower, other = registries
    for number, registry in enumerate((follower, leader, other)):
        name = f"Through{number}"
        _, told = registry.call("POST", f"/subjects/{name}/versions", avro("a", name=name))
        assert told["id"] == number + 1
        # At once, and there: what was answered has been read back by who answered it.
        assert registry.call("GET", f"/subjects/{name}/versions") == (200, [1])
        assert all(each.call("GET", f"/schemas/ids/{told['id']}")[0] == 200 for each in registries)
    assert follower.call("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert follower.call("DELETE", "/subjects/Through0") == (200, [1])
    assert other.call("DELETE", "/subjects/Through0")[1]["error_code"] == 40404

    assert leader.stop() == 0
    _, told = follower.call("POST", "/subjects/next/versions", avro("a", name="Next"))
    assert told["id"] == 4


def test_lost_leaders_are_replaced_and_no_id_is_given_twice(registries: list[RegistryProcess]) -> None:
    first, *others = registries
    clients = Clients(registries)
    try:
        clients.wait_for(10)
        # In the middle of whatever it was writing; its successor begins before it wakes.
        first.pause()
        second = leader_among(others)
        clients.wait_for(10)
        first.resume()
        clients.wait_for(10)
        second.kill()
        others.remove(second)
        clients.wait_for(10)
    finally:
        first.resume()
        given = clients.end()
    check_nothing_is_lost(given, [first, *others])
