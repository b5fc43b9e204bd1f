"""The listener for scrapes, from its start to its stop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from metrics_kit import Transport, World, say

from ottla.config import ConfigError
from ottla.config.listeners import Address
from ottla.runtime.clock import SystemClock
from ottla.runtime.tasks import ThreadOffload
from ottla.server.metrics.endpoint import MetricsEndpoint
from ottla.server.metrics.gathering import Gathering
from ottla.wire.api import ApiKey
from ottla.wire.errors import NetworkException


class Net:
    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.asked: tuple[str, int] | None = None
        self.closed = False
        self.address = ("127.0.0.1", 4711)

    async def listen(self, factory: Callable[[], Any], host: str, port: int) -> Net:
        if self.error is not None:
            raise self.error
        self.asked = (host, port)
        self.factory = factory
        return self

    async def close(self) -> None:
        self.closed = True

    def connect(self) -> tuple[Any, Transport]:
        connection, transport = self.factory(), Transport()
        connection.connection_made(transport)
        return connection, transport


def endpoint(net: Net) -> MetricsEndpoint:
    world = World()
    world.broker.runtime = SimpleNamespace(net=net, offload=ThreadOffload(), clock=SystemClock())
    return MetricsEndpoint(Gathering(world.broker, world.limits, nobody))


async def nobody(broker_id: int, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
    raise NetworkException("there is no other broker")


def test_it_tells_where_it_listens_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        net = Net()
        with caplog.at_level("INFO"):
            await endpoint(net).serve(Address("127.0.0.1", 0))
        assert net.asked == ("127.0.0.1", 0)
        assert "http://127.0.0.1:4711/metrics" in caplog.text
        connection, transport = net.connect()
        say(connection, b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(20):
            while not transport.closed:
                await asyncio.sleep(0.001)
        assert transport.status == 200
        assert 'ottla_partition_log_end_offset{partition="0",topic="orders"} 5\n' in transport.body
        assert "\nottla_connections 2\n" in transport.body
        assert (
            '\nkafka_network_requestmetrics_errors_total{request="Produce",error="CORRUPT_MESSAGE"} 1\n'
            in (transport.body)
        )
        assert '\nkafka_server_raftmetrics_current_state{current_state="leader"} 1\n' in transport.body
        assert "\nkafka_server_raftmetrics_commit_latency_avg 2.0\n" in transport.body
        lag = [line for line in transport.body.splitlines() if line.startswith("kafka_consumergroup_lag{")]
        assert lag == [
            'kafka_consumergroup_lag{consumergroup="shop",topic="orders",partition="0"} 2',
            'kafka_consumergroup_lag{consumergroup="shop",topic="orders",partition="1"} 0',
        ], "nobody knows where the other one ends"
        assert '\nkafka_consumergroup_members{consumergroup="shop"} 2\n' in transport.body

    asyncio.run(run())


def test_it_leaves_nothing_behind() -> None:
    async def run() -> None:
        net = Net()
        stopped = endpoint(net)
        await stopped.serve(Address("", 0))
        (asking, asked), (_, idle) = net.connect(), net.connect()
        say(asking, b"GET /metrics HTTP/1.1\r\n\r\n")
        await stopped.stop()
        assert net.closed
        assert asked.aborted
        assert idle.aborted
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_an_address_that_cannot_be_had_is_named_with_its_key() -> None:
    async def run() -> None:
        refused = endpoint(Net(OSError(errno.EADDRINUSE, "address already in use")))
        with pytest.raises(ConfigError) as error:
            await refused.serve(Address("::1", 9404))
        assert str(error.value) == (
            "ottla.metrics.listener=[::1]:9404: cannot listen there (address already in use); choose another "
            "address or port"
        )
        await refused.stop()

    asyncio.run(run())
