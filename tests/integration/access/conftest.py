"""See `principals`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench.brokers import free_port
from principals import PRINCIPALS, Servers, Start, settings

from ottla.handlers.session import Session
from ottla.server.dispatch import Dispatcher
from ottla.testing import InProcessBroker


@pytest.fixture(scope="session", autouse=True)
def listeners_are_principals() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        connected = Dispatcher.connected

        def connect(self: Dispatcher, session: Session) -> None:
            connected(self, session)
            # The patch holds for the rest of a worker's tests, and so for brokers of other tests.
            if session.listener in PRINCIPALS:
                session.principal = f"User:{session.listener.lower()}"

        patch.setattr(Dispatcher, "connected", connect)
        yield


@pytest.fixture(scope="session")
def start() -> Start:
    @contextmanager
    def start(data_dir: str | None = None, **more: str) -> Iterator[Servers]:
        ports = {name: free_port() for name in PRINCIPALS}
        with InProcessBroker(settings(ports, **more), data_dir):
            yield {name.lower(): f"127.0.0.1:{port}" for name, port in ports.items()}

    return start


@pytest.fixture(scope="module")
def servers(start: Start) -> Iterator[Servers]:
    with start() as running:
        yield running
