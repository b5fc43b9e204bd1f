"""A cluster as tools see it: ask any broker anything, one request at a time, without asyncio in sight.

All that is synchronous about it is here, and what tools say when something fails; whom to ask, and when to
ask again, is the cluster client's business.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.properties import read_properties
from ottla.client.cluster import GROUP, ClusterClient
from ottla.client.connections import parse_addresses
from ottla.client.errors import ClusterUnreachable
from ottla.client.metadata import BrokerNode, TopicInfo
from ottla.client.peer import Peer, PeerUnusable
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.api import ApiKey
from ottla.wire.errors import KafkaError

_TELL_AFTER_S = 1.5
_TELL_EVERY_S = 10.0
# What most likely is behind it, for whoever sits before a screen that says no more.
_SILENT = (
    "it takes connections: a broker that answers nothing may be paused, or wait for an active controller, "
    "which needs more than half of the voters (kafka-metadata-quorum describe --status)"
)
_HANGS_UP = {
    "PLAINTEXT": ": does security.protocol=PLAINTEXT, the default, fit that listener?",
    "SSL": ": if that listener wants a login, use security.protocol=SASL_SSL with sasl.mechanism",
}

T = TypeVar("T")
P = ParamSpec("P")
Check = Callable[[Any], None]
"""Raises KafkaError for error codes inside an answer; it is asked for again while they are retriable."""


class Admin:
    """What a broker refuses, by an error code of a whole answer or in a `check`, is raised as Refused."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], prog: str) -> None:
        check_addresses(bootstrap)
        try:
            client_id = {"client.id": prog.replace(" ", "-")}
            self._cluster = ClusterClient(AsyncioNetwork(), bootstrap, {**client_id, **properties})
        except ValueError as error:
            raise ToolError(str(error)) from None
        self.request_timeout_ms = self._cluster.timeouts.request_ms
        """How long brokers may take for what they are asked to do."""
        self._bootstrap = bootstrap
        self._prog = prog
        self._protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        self._runner = asyncio.Runner()

    def call(
        self,
        function: Callable[Concatenate[ClusterClient, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **given: P.kwargs,
    ) -> T:
        """Does what a function of `ottla.client.admin` does."""
        return self._run(function(self._cluster, *args, **given))

    def ask(
        self,
        api: ApiKey,
        values: Mapping[str, Any] | None = None,
        *,
        node: int | None = None,
        version_max: int | None = None,
        check: Check | None = None,
        about: str = "",
    ) -> Any:
        """The answer of one broker, any if `node` is None."""
        return self._run(
            self._cluster.ask(node, api, values, version_max=version_max, check=check, about=about)
        )

    def ask_coordinator(
        self,
        key: str,
        api: ApiKey,
        values: Mapping[str, Any],
        *,
        kind: int = GROUP,
        version_max: int | None = None,
        check: Check | None = None,
    ) -> Any:
        """The answer of the broker that looks after a group or a transactional id."""
        return self._run(
            self._cluster.ask_coordinator(kind, key, api, values, check, version_max=version_max, about="")
        )

    def coordinator(self, key: str, kind: int = GROUP) -> BrokerNode:
        return self._retried(lambda: self._cluster.coordinating_broker(kind, key))

    def nodes(self) -> Mapping[int, BrokerNode]:
        """The brokers by id, in order."""
        return self._run(self._cluster.cluster()).brokers

    def topics(self, names: list[str] | None) -> dict[str, TopicInfo]:
        """By name, in order: those of the names that exist, or all."""
        if names is None:
            return self._run(self._cluster.topics_matching(".*"))
        return self._run(self._cluster.topics(names))

    def peer(self, node: int | None = None) -> Peer:
        cluster = self._cluster
        return self._retried(cluster.any_node if node is None else lambda: cluster.node(node))

    def serves(self, api: ApiKey) -> bool:
        return self._run(self._cluster.serves(api))

    def close(self) -> None:
        with self._runner:
            self._cluster.close()

    def _retried(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._run(self._cluster.retried(attempt))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        began_s = time.monotonic()
        try:
            return self._runner.run(self._told_while_waiting(work))
        except asyncio.CancelledError:
            # Ctrl-C in the moment before the runner listens for it; nobody else cancels.
            raise KeyboardInterrupt from None
        except KafkaError as error:
            raise Refused(error.code, error.message, error.about) from None
        except PeerUnusable as error:
            raise ToolError(str(error)) from None
        except ClusterUnreachable as error:
            if not error.failures:
                raise ToolError(str(error)) from None
            *_, reason = error.failures.values()
            tried_s = round(time.monotonic() - began_s, 1)
            where = ",".join(error.failures)
            raise ToolError(f"cannot reach {where}: {reason} (tried for {tried_s:g} s)") from None

    async def _told_while_waiting(self, work: Coroutine[Any, Any, T]) -> T:
        """Says what is waited for, so that nobody sits before a silent screen until it is given up."""
        telling = asyncio.ensure_future(self._tell())
        try:
            return await work
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        await asyncio.sleep(_TELL_AFTER_S)
        while True:
            print(f"{self._prog}: {self._waited_for()}, Ctrl-C to give up", file=sys.stderr, flush=True)
            await asyncio.sleep(_TELL_EVERY_S)

    def _waited_for(self) -> str:
        error, passing = self._cluster.unreachable, self._cluster.passing
        if error is not None and error.failures:
            where = ", ".join(f"{address}: {reason}" for address, reason in error.failures.items())
            return f"cannot reach {where}; trying again"
        if isinstance(passing, KafkaError):
            return f"{passing}; trying again"
        if passing is not None:
            hint = _HANGS_UP.get(self._protocol, "")
            return f"{passing}; it takes connections and ends them{hint}; trying again"
        return f"{self._bootstrap} has not answered yet; {_SILENT}"


@contextmanager
def cluster(given: argparse.Namespace, properties: Mapping[str, str] | None = None) -> Iterator[Admin]:
    """The cluster that `--bootstrap-server` and `--command-config` of a tool name."""
    if properties is None:
        properties = read_properties(given.command_config) if given.command_config else {}
    controllers = getattr(given, "bootstrap_controller", None)
    if (given.bootstrap_server is None) == (controllers is None):
        raise ToolError("give either --bootstrap-server or --bootstrap-controller")
    admin = Admin(given.bootstrap_server or controllers or "", properties, given.prog)
    try:
        yield admin
    finally:
        admin.close()


def check_addresses(text: str) -> None:
    """As Apache Kafka's tools, ours take no address without a port."""
    try:
        parse_addresses(text, default_port=None)
    except ValueError:
        raise ToolError(
            f"--bootstrap-server {text}: must be host:port, or several as host1:9091,host2:9092"
        ) from None
