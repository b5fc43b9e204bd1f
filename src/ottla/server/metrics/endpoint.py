"""The listener for scrapes."""

from __future__ import annotations

import base64
import logging
import ssl

from ottla.config import BrokerConfig, ConfigError
from ottla.config.listeners import Address
from ottla.runtime.net import Listener
from ottla.runtime.tasks import TaskScope
from ottla.server.metrics.connection import PATH, MetricsConnection
from ottla.server.metrics.gathering import Gathering
from ottla.server.metrics.page import Page, render
from ottla.server.metrics.visitors import MetricsDoor, Visitors

log = logging.getLogger(__name__)


class MetricsEndpoint:
    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._broker = gathering.broker
        # A scrape answers for its own failures.
        self._tasks = TaskScope("metrics", lambda name, error: None)
        self._visitors = Visitors(self._broker.runtime.clock)
        self._listener: Listener | None = None

    async def serve(self, address: Address) -> None:
        """ConfigError where that cannot be."""
        config = self._broker.config
        tls = _context(config)
        credentials = _credentials(config)
        net = self._broker.runtime.net

        def connection() -> MetricsConnection:
            return MetricsConnection(self._scrape, self._tasks, self._visitors, credentials)

        try:
            if tls is None:
                self._listener = await net.listen(connection, *address)
            else:
                self._listener = await net.listen_tls(MetricsDoor(tls, connection), *address)
        except OSError as error:
            raise ConfigError(
                f"ottla.metrics.listener={address}: cannot listen there ({error.strerror}); choose another "
                "address or port"
            ) from error
        scheme = "http" if tls is None else "https"
        log.info("metrics are at %s://%s%s", scheme, Address(*self._listener.address), PATH)

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        self._visitors.abort()
        await self._tasks.close()

    async def _scrape(self, accept: str) -> Page:
        sources = await self._gathering.sources()
        # With thousands of partitions, writing the text takes longer than requests should wait.
        return await self._broker.runtime.offload.run(render, sources, accept)


def _context(config: BrokerConfig) -> ssl.SSLContext | None:
    certificate = config.string("ottla.metrics.tls.certificate.file")
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, config.string("ottla.metrics.tls.key.file") or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"ottla.metrics.tls.certificate.file={certificate}: cannot be used ({error}); give a PEM file "
            "with a certificate, and its private key in the same file or in ottla.metrics.tls.key.file"
        ) from error
    return context


def _credentials(config: BrokerConfig) -> str | None:
    """As the header of a request has them, behind `Basic`."""
    name, password = config.string("ottla.metrics.username"), config.optional_string("ottla.metrics.password")
    if not name:
        return None
    return base64.b64encode(f"{name}:{password}".encode()).decode()
