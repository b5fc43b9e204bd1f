"""Serves the console: in the foreground for people, in a thread for tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from ottla.console.app import console_app
from ottla.console.clusters import ClusterSettings

_START_TIMEOUT_S = 30.0
# Streams end when their listeners go; a console that stops does not wait for them.
_STOP_S = 1


class CannotListen(Exception):
    """The text names address and reason."""


def new_server(
    settings: Sequence[ClusterSettings],
    *,
    host: str,
    port: int,
    names: Collection[str] = (),
    user_header: str | None = None,
    proxies: Collection[str] = (),
) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            console_app(settings, names=names, user_header=user_header, proxies=proxies),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            # The application does it itself: it has to know who connects.
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_S,
        )
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
    server = new_server(settings, host=host, port=port, user_header=user_header)
    thread = threading.Thread(target=server.run, name="console-http", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{_bound_port(server, thread, host, port)}"
    finally:
        server.should_exit = True
        thread.join()


def _bound_port(server: uvicorn.Server, thread: threading.Thread, host: str, port: int) -> int:
    waited = threading.Event()
    for _ in range(int(_START_TIMEOUT_S / 0.01)):
        if server.started:
            bound: int = server.servers[0].sockets[0].getsockname()[1]
            return bound
        if not thread.is_alive():
            break
        waited.wait(0.01)
    raise CannotListen(f"the console cannot listen on {host}:{port}; is the port in use?")
