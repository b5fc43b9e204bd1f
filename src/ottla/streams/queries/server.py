"""The HTTP server of an application's tables and what else it shows, in a thread beside the application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.routing import Route

from ottla.runtime.web_thread import CannotListen, served_in_thread
from ottla.streams.errors import StreamsError
from ottla.streams.queries.http import tables_app

if TYPE_CHECKING:
    from ottla.streams.queries.view import TableView


@contextmanager
def tables_served(
    views: Mapping[str, TableView], host: str = "127.0.0.1", port: int = 0, others: Sequence[Route] = ()
) -> Iterator[str]:
    """Gives the address, with the port that was free if `port` is 0."""
    config = uvicorn.Config(tables_app(views, others), host=host, port=port, log_level="warning")
    with ExitStack() as stack:
        try:
            address = stack.enter_context(served_in_thread(config, "tables-http"))
        except CannotListen as error:
            raise StreamsError(f"nothing can be served: {error}") from None
        yield address
