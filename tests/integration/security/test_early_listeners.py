"""Listeners of a controller that has yet to hear of the access rules: one of three voters, alone."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from uuid import UUID

import pytest

from ottla.client.peer import Peer
from ottla.metadata.meta_properties import FILE_NAME, MetaProperties
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

LOCAL = "127.0.0.1"
NAMES = ("CONTROLLER", "EARLY")


def one_of_three(directory: Path, **settings: str) -> InProcessBroker:
    first, second, *others = free_ports(LOCAL, 4)
    voters = [f"{1 + at}@{LOCAL}:{port}" for at, port in enumerate((first, *others))]
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, UUID(int=1000))
    (directory / FILE_NAME).write_text(meta.to_text())
    given = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": ",".join(NAMES),
        "listeners": f"CONTROLLER://{LOCAL}:{first},EARLY://{LOCAL}:{second}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # What may be there is not known, so this does not count either.
        "allow.everyone.if.no.acl.found": "true",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return InProcessBroker(given, data_dir=str(directory))


def described(port: int) -> ErrorCode:
    """What a controller answers who asks how the quorum is."""

    async def ask() -> ErrorCode:
        peer = await Peer.connect(AsyncioNetwork(), LOCAL, port, client_id="test", software_version="1")
        try:
            partition = {"partition_index": 0}
            topics = [{"topic_name": "__cluster_metadata", "partitions": [partition]}]
            answer = await peer.ask(ApiKey.DESCRIBE_QUORUM, {"topics": topics})
            return ErrorCode(answer.error_code)
        finally:
            peer.close()

    return asyncio.run(ask())


def test_super_users_alone_are_served_before_the_rules_are_known(tmp_path: Path) -> None:
    with one_of_three(tmp_path) as controller:
        assert described(controller.ports["CONTROLLER"]) is ErrorCode.unknown_server_error
        assert described(controller.ports["EARLY"]) is ErrorCode.unknown_server_error


@pytest.mark.parametrize("early", ["EARLY", "early", " EARLY , "])
def test_a_listener_that_is_not_early_waits(tmp_path: Path, early: str) -> None:
    settings = {"super_users": "User:ANONYMOUS", "early_start_listeners": early}
    with one_of_three(tmp_path, **settings) as controller:
        assert described(controller.ports["EARLY"]) is not ErrorCode.unknown_server_error
        with socket.create_connection((LOCAL, controller.ports["CONTROLLER"]), timeout=0.3) as connection:
            connection.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff")
            with pytest.raises(TimeoutError):
                connection.recv(1)
