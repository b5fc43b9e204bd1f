"""Serves the console: in the foreground for people, in a thread for tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from ottla.console.app import console_app
from ottla.console.clusters import ClusterSettings
from ottla.runtime.web_connections import BoundedConnections
from ottla.runtime.web_thread import served_in_thread

# Streams end when their listeners go; a console that stops does not wait for them.
_STOP_S = 1


def server_config(
    settings: Sequence[ClusterSettings],
    *,
    host: str,
    port: int,
    names: Collection[str] = (),
    user_header: str | None = None,
    proxies: Collection[str] = (),
) -> uvicorn.Config:
    return uvicorn.Config(
        console_app(settings, names=names, user_header=user_header, proxies=proxies),
        host=host,
        port=port,
        http=BoundedConnections,
        log_level="warning",
        access_log=False,
        server_header=False,
        # The application does it itself: it has to know who connects.
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_S,
    )


@contextmanager
def console_served(
    settings: Sequence[ClusterSettings],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    user_header: str | None = None,
) -> Iterator[str]:
    """Gives the address, with the port that was free if `port` is 0."""
    config = server_config(settings, host=host, port=port, user_header=user_header)
    with served_in_thread(config, "console-http") as address:
        yield address
