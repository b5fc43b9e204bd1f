"""A node whose logs take long to recover goes on voting and following the metadata meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.client.connections import Connections
from ottla.config import BrokerConfig
from ottla.log import manager
from ottla.log.log import PartitionLog
from ottla.node import Node
from ottla.runtime import real_runtime
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.testing import InProcessBroker
from ottla.wire.api import METADATA_TOPIC, ApiKey
from ottla.wire.errors import ErrorCode

WAIT_S = 30


def with_a_topic(directory: Path) -> None:
    with InProcessBroker(data_dir=str(directory)) as broker:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"espresso")
        assert producer.flush(WAIT_S) == 0


async def quorum(network: AsyncioNetwork, port: int) -> Any:
    """What the node tells other members of the quorum."""
    connections = Connections(network, {}, WAIT_S)
    topic = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    try:
        peer = await connections.peer("127.0.0.1", port)
        answer = await peer.ask(ApiKey.DESCRIBE_QUORUM, {"topics": [topic]})
        return answer.topics[0].partitions[0]
    finally:
        connections.close()


def test_the_quorum_is_served_while_logs_are_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_a_topic(tmp_path)
    port, controller_port = free_ports("127.0.0.1", 2)
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(tmp_path),
        }
    )
    opening, answered = threading.Event(), threading.Event()
    really_open = manager.open_log

    def open_slowly(*args: Any, **kwargs: Any) -> PartitionLog:
        opening.set()
        assert answered.wait(WAIT_S), "nobody was answered while a log was being opened"
        return really_open(*args, **kwargs)

    monkeypatch.setattr(manager, "open_log", open_slowly)
    monkeypatch.setattr(manager, "OPENING_SAID_SECONDS", 0.1)

    async def main() -> None:
        runtime = real_runtime()
        node = Node(runtime, config)
        starting = asyncio.ensure_future(node.start())
        try:
            assert await asyncio.to_thread(opening.wait, WAIT_S)
            async with asyncio.timeout(WAIT_S):
                told = await quorum(AsyncioNetwork(), controller_port)
            assert (told.error_code, told.leader_id) == (ErrorCode.none, 1)
            while "still opening logs" not in caplog.text:
                assert not starting.done()
                await asyncio.sleep(0.05)
            answered.set()
            await asyncio.wait_for(starting, WAIT_S)
        finally:
            answered.set()
            await asyncio.wait([starting])
            await node.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert f"next is {tmp_path}/orders-0" in caplog.text
