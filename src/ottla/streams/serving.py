"""Applications that can be asked: tables, topology and metrics over HTTP, and word of it on the cluster.

with served([app], port=8080) as url:
    app.wait()
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ottla.client.applications import Announcement, announce, withdraw
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.spark.connection import shared_connection
from ottla.streams.application.http import application_routes
from ottla.streams.queries.server import tables_served
from ottla.streams.run import StreamsApplication
from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.streams")

_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


@contextmanager
def served(
    applications: Sequence[StreamsApplication], host: str = "127.0.0.1", port: int = 0
) -> Iterator[str]:
    """Gives the address, with the port that was free if ``port`` is 0.

    What listens on all addresses is announced by the name of the machine.
    """
    views = {name: application.table(name) for application in applications for name in application.tables()}
    routes = application_routes(lambda: [application.snapshot() for application in applications])
    with ExitStack() as cleanup:
        for view in views.values():
            cleanup.callback(view.close)
        url = cleanup.enter_context(tables_served(views, host, port, routes))
        if host in _EVERYWHERE:
            url = f"http://{socket.getfqdn()}:{url.rpartition(':')[2]}"
        for application in applications:
            cleanup.enter_context(_announced(application, url))
        yield url


@contextmanager
def _announced(application: StreamsApplication, url: str) -> Iterator[None]:
    """It is a service to those who look, so the application runs without it as well."""
    config = application.config
    connection = shared_connection(config.bootstrap_servers, dict(config.properties))
    now_ms = time.time_ns() // 1_000_000
    told = Announcement(config.application_id, url, socket.gethostname(), os.getpid(), now_ms)
    try:
        connection.run(announce(connection.cluster, told))
    except (KafkaError, ClusterUnreachable, PeerUnusable, OSError) as error:
        logger.warning("%s cannot be announced on the cluster: %s", config.application_id, error)
        yield
        return
    try:
        yield
    finally:
        try:
            connection.run(withdraw(connection.cluster, config.application_id, time.time_ns() // 1_000_000))
        except (KafkaError, ClusterUnreachable, PeerUnusable, OSError) as error:
            logger.warning("%s stays announced on the cluster: %s", config.application_id, error)
