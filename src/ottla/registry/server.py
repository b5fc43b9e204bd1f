"""The HTTP server of a registry, on the event loop that its cluster clients run on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import uvicorn

from ottla.registry.election import Identity
from ottla.registry.http import registry_app
from ottla.registry.service import RegistryService, RegistrySettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.net import AsyncioNetwork

_DRAIN_S = 5


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are its owner's business, who has a group to leave."""
        yield


class Serving(NamedTuple):
    url: str
    life: asyncio.Task[None]
    """Ends by an error alone: what is served from then on would grow old."""


@asynccontextmanager
async def serving(
    settings: RegistrySettings, host: str, port: int, advertised: tuple[str, int] | None = None
) -> AsyncIterator[Serving]:
    """Begins when requests can be answered. OSError where the address is taken."""
    service = RegistryService(AsyncioNetwork(), SystemClock(), settings)
    await service.start()
    server = _Server(
        uvicorn.Config(
            registry_app(service),
            host=host,
            port=port,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=_DRAIN_S,
        )
    )
    serve = asyncio.ensure_future(_serve(server, host, port))
    run: asyncio.Task[None] | None = None
    try:
        # uvicorn has no event for it.
        while not server.started and not serve.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if serve.done():
            await serve
        bound = server.servers[0].sockets[0].getsockname()[1]
        at = advertised or (host, bound)
        identity = Identity(at[0], at[1] or bound)
        run = asyncio.ensure_future(service.run(identity))
        ready = asyncio.ensure_future(service.wait_until_ready())
        done, _ = await asyncio.wait((run, ready), return_when=asyncio.FIRST_COMPLETED)
        if run in done:
            ready.cancel()
            await run
        yield Serving(identity.url, run)
    finally:
        server.should_exit = True
        await service.stop()
        if run is not None:
            run.cancel()
            # What it ended with is its owner's to say.
            await asyncio.wait((run,))
        with contextlib.suppress(OSError):
            await serve


async def _serve(server: uvicorn.Server, host: str, port: int) -> None:
    try:
        await server.serve()
    except SystemExit:
        # uvicorn ends the process where it cannot listen; the reason is in its log.
        raise OSError(f"{host}:{port} cannot be listened on; is the port in use?") from None
