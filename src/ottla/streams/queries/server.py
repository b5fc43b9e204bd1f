"""The HTTP server of an application's tables and what else it shows, in a thread beside the application."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.routing import Route

from ottla.streams.errors import StreamsError
from ottla.streams.queries.http import tables_app

if TYPE_CHECKING:
    from ottla.streams.queries.view import TableView

_START_TIMEOUT_S = 10.0


@contextmanager
def tables_served(
    views: Mapping[str, TableView], host: str = "127.0.0.1", port: int = 0, others: Sequence[Route] = ()
) -> Iterator[str]:
    """Gives the address, with the port that was free if `port` is 0."""
    app = tables_app(views, others)
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="tables-http", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{_port(server, thread, host, port)}"
    finally:
        server.should_exit = True
        thread.join()


def _port(server: uvicorn.Server, thread: threading.Thread, host: str, port: int) -> int:
    waited = threading.Event()
    for _ in range(int(_START_TIMEOUT_S / 0.01)):
        if server.started:
            bound: int = server.servers[0].sockets[0].getsockname()[1]
            return bound
        if not thread.is_alive():
            break
        waited.wait(0.01)
    raise StreamsError(f"nothing can be served on {host}:{port}; is the port in use?")
