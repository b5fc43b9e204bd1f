"""A PostgreSQL server of the test's own; skips where PostgreSQL is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from bench import postgres_peer
from bench.maven import PeerUnavailable
from bench.postgres_peer import PASSWORD, PostgresServer

__all__ = ["PASSWORD", "PostgresServer", "postgres_server"]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_peer.postgres_server())
        except PeerUnavailable as reason:
            pytest.skip(str(reason))
        yield server
