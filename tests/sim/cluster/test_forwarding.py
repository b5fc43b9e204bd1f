"""What is asked of the active controller by way of another node, on a simulated network."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from ottla.client.connections import Connections
from ottla.client.messages import ask_codec
from ottla.client.peer import Peer
from ottla.config import BrokerConfig
from ottla.controller.controller import LocalController
from ottla.handlers.registry import CONTROLLER_REGISTRY
from ottla.membership.channel import ControllerChannel
from ottla.metadata.records import MetadataRecord
from ottla.node import Node
from ottla.raft.driver import Appended, Leadership
from ottla.runtime import Runtime
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.envelopes import pack_host, pack_principal
from ottla.wire.errors import ErrorCode, NotController

CONTROLLER = ("c1", 9093)
ELSEWHERE = ("b1", 9093)
PROPERTIES = {
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.voters": "1@c1:9093",
    "log.dirs": "/data",
}
CREATION = {"topics": [{"name": "orders", "num_partitions": 3, "replication_factor": 1}], "timeout": 5000}


def packed(api_key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    """As a client sends it, without the length in front."""
    codec = ask_codec(api_key, version)
    header = struct.pack(">hhih", api_key, version, 42, 2) + b"me" + (b"\0" if codec.flexible else b"")
    return header + codec.write(values)


def with_controller(scenario: Callable[[SimWorld, Node], Coroutine[Any, Any, None]]) -> None:
    with SimWorld(1) as world:
        nodes: list[Node] = []

        async def boot(runtime: Runtime) -> None:
            node = Node(runtime, BrokerConfig.from_properties(PROPERTIES))
            await node.start()
            nodes.append(node)

        async def run() -> None:
            await world.start("c1", boot)
            await world.spawn("b1", scenario(world, nodes[0]))

        world.run(run())


def test_a_request_is_answered_as_if_the_client_had_asked_the_controller() -> None:
    async def scenario(world: SimWorld, node: Node) -> None:
        channel = ControllerChannel(world.runtime("b1"), lambda: CONTROLLER, {"client.id": "b1"}, timeout_s=5)
        for version in (4, 7):
            codec = ask_codec(ApiKey.CREATE_TOPICS, version)
            request = packed(ApiKey.CREATE_TOPICS, version, CREATION)
            body = await channel.forward(request, "User:ann", "10.0.0.9", codec.response_header_flexible)
            [topic] = codec.read(bytes(body), 0).topics
            assert topic.name == "orders"
            assert topic.error_code is (ErrorCode.none if version == 4 else ErrorCode.topic_already_exists)
        channel.close()

    with_controller(scenario)


def test_who_does_not_answer_is_asked_no_more_once_another_leads() -> None:
    async def scenario(world: SimWorld, node: Node) -> None:
        known = iter([None, ELSEWHERE, None])
        channel = ControllerChannel(
            world.runtime("b1"), lambda: next(known, CONTROLLER), {"client.id": "b1"}, timeout_s=5
        )
        answer = await channel.ask(ApiKey.CREATE_TOPICS, CREATION)
        assert answer.topics[0].error_code is ErrorCode.none
        nobody = ControllerChannel(world.runtime("b1"), lambda: None, {"client.id": "b1"}, timeout_s=0.5)
        with pytest.raises(NotController, match="nobody leads"):
            await nobody.ask(ApiKey.CREATE_TOPICS, CREATION)
        absent = ControllerChannel(world.runtime("b1"), lambda: ELSEWHERE, {"client.id": "b1"}, timeout_s=0.5)
        with pytest.raises(NotController, match="b1:9093"):
            await absent.ask(ApiKey.CREATE_TOPICS, CREATION)

    with_controller(scenario)


def lose_leadership_at_next_append(node: Node) -> None:
    """For a second, before that is committed; then the next leader, which is this node again, commits it."""
    broker = node._seen_by_controllers
    local, quorum = broker.controller, broker.quorum
    assert isinstance(local, LocalController)
    loop = asyncio.get_running_loop()
    append = quorum.append

    def lose() -> None:
        local.on_leadership(Leadership(quorum.epoch, None))
        quorum._refuse_waiting(NotController("this node does not lead the metadata quorum any more"))
        loop.call_later(1, lambda: local.on_leadership(Leadership(quorum.epoch, 1)))

    def append_once(records: Sequence[MetadataRecord]) -> Appended:
        quorum.append = append  # type: ignore[method-assign]
        loop.call_soon(lose)
        return append(records)

    quorum.append = append_once  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("api_key", "version", "values", "told"),
    [
        (ApiKey.CREATE_TOPICS, 7, CREATION, ErrorCode.topic_already_exists),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": "there",
                        "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
                    }
                ]
            },
            ErrorCode.none,
        ),
        # It may have been made again since.
        (
            ApiKey.DELETE_TOPICS,
            6,
            {"topics": [{"name": "there"}], "timeout": 5000},
            ErrorCode.request_timed_out,
        ),
    ],
)
def test_a_leader_that_is_replaced_before_the_commit_has_the_next_one_asked(
    api_key: ApiKey, version: int, values: dict[str, Any], told: ErrorCode
) -> None:
    async def scenario(world: SimWorld, node: Node) -> None:
        channel = ControllerChannel(world.runtime("b1"), lambda: CONTROLLER, {"client.id": "b1"}, timeout_s=9)
        there = {"topics": [{"name": "there", "num_partitions": 1, "replication_factor": 1}], "timeout": 5000}
        await channel.ask(ApiKey.CREATE_TOPICS, there)
        lose_leadership_at_next_append(node)
        codec = ask_codec(api_key, version)
        body = await channel.forward(
            packed(api_key, version, values), "User:ann", "10.0.0.9", codec.response_header_flexible
        )
        answer = codec.read(bytes(body), 0)
        [result] = answer.topics if api_key is ApiKey.CREATE_TOPICS else answer.responses
        assert result.error_code is told
        channel.close()

    with_controller(scenario)


def test_only_what_the_controller_answers_may_be_in_an_envelope() -> None:
    async def scenario(world: SimWorld, node: Node) -> None:
        connections = Connections(world.runtime("b1").net, {}, 5)
        peer = await connections.peer(*CONTROLLER)

        async def answered(request: bytes, principal: bytes = pack_principal("User:ann")) -> ErrorCode:
            values = {
                "request_data": request,
                "request_principal": principal,
                "client_host_address": pack_host("::1"),
            }
            code: ErrorCode = (await peer.ask(ApiKey.ENVELOPE, values)).error_code
            return code

        creation = packed(ApiKey.CREATE_TOPICS, 7, CREATION)
        assert await answered(creation) is ErrorCode.none
        for other in (
            packed(ApiKey.METADATA, 12, {"topics": None}),
            packed(ApiKey.ENVELOPE, 0, {"request_data": creation, "client_host_address": pack_host("::1")}),
            creation[:-3],
            b"",
        ):
            assert await answered(other) is ErrorCode.invalid_request
        assert await answered(creation, b"\0\7") is ErrorCode.invalid_request
        assert await answered(creation[:2] + b"\0\1" + creation[4:]) is ErrorCode.unsupported_version

    with_controller(scenario)


def test_a_controllers_listener_serves_controllers() -> None:
    async def scenario(world: SimWorld, node: Node) -> None:
        connections = Connections(world.runtime("b1").net, {}, 5)
        peer: Peer = await connections.peer(*CONTROLLER)
        assert sorted(peer.versions) == sorted(CONTROLLER_REGISTRY)
        client: Peer = await connections.peer("c1", 9092)
        assert ApiKey.ENVELOPE not in client.versions and ApiKey.PRODUCE in client.versions

    with_controller(scenario)
