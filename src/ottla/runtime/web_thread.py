"""A web server in a thread, beside whatever its process is there for. Needs uvicorn, which brokers do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

_START_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.01


class CannotListen(Exception):
    """The text names the address."""


@contextmanager
def served_in_thread(config: uvicorn.Config, name: str) -> Iterator[str]:
    """Gives the address, with the port that was free if that of `config` is 0. CannotListen."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name=name, daemon=True)
    thread.start()
    try:
        yield f"http://{config.host}:{_bound_port(server, thread)}"
    finally:
        server.should_exit = True
        thread.join()


def _bound_port(server: uvicorn.Server, thread: threading.Thread) -> int:
    waited = threading.Event()
    for _ in range(int(_START_TIMEOUT_S / _LOOK_EVERY_S)):
        if server.started:
            bound: int = server.servers[0].sockets[0].getsockname()[1]
            return bound
        if not thread.is_alive():
            break
        # It has no event for it.
        waited.wait(_LOOK_EVERY_S)
    raise CannotListen(f"cannot listen on {server.config.host}:{server.config.port}; is the port in use?")
