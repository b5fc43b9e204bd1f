"""How a node starts, fails and stops: what comes before what, and what is left behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.config import BrokerConfig
from ottla.controller.controller import LocalController
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.log.manager import LogManager
from ottla.log.names import CLEAN_SHUTDOWN_FILE
from ottla.metadata.publisher import MetadataPublisher
from ottla.node import Node
from ottla.raft.driver import RaftDriver
from ottla.replication.manager import ReplicaManager
from ottla.server.listener import Server
from ottla.sim.broker import LOG_DIR, PROPERTIES
from ottla.sim.world import SimWorld, simulate

CONFIG = BrokerConfig.from_properties(PROPERTIES)
STEPS: list[tuple[type, str]] = [
    (LogManager, "lock"),
    (LogManager, "open_in_turns"),
    (LogManager, "start"),
    (LogManager, "close"),
    (LogManager, "unlock"),
    (RaftDriver, "start"),
    (MetadataPublisher, "subscribe"),
    (LocalController, "register_broker"),
    (RaftDriver, "close"),
    (ReplicaManager, "catch_up"),
    (GroupCoordinator, "close"),
    (Server, "bind"),
    (Server, "serve"),
    (Server, "stop_reading"),
    (Server, "abort"),
]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened so far, each noted when it had ended."""
    seen: list[str] = []

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)
        label = f"{owner.__name__}.{name}"

        def called(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            seen.append(label)
            return result

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            result = await real(*args, **kwargs)
            seen.append(label)
            return result

        monkeypatch.setattr(owner, name, awaited if inspect.iscoroutinefunction(real) else called)

    for owner, name in STEPS:
        watch(owner, name)
    return seen


def run(scenario: Callable[[SimWorld], Coroutine[Any, Any, None]]) -> None:
    simulate(scenario, seed=1)


def was_closed(world: SimWorld) -> bool:
    """Whether the next start may trust the directory as it is."""
    return world.runtime("b1").disk.exists(f"{LOG_DIR}/{CLEAN_SHUTDOWN_FILE}")


def test_clients_come_in_last(steps: list[str]) -> None:
    async def scenario(world: SimWorld) -> None:
        node = Node(world.runtime("b1"), CONFIG)
        await node.start()
        assert steps == [
            "LogManager.lock",
            "RaftDriver.start",
            "LogManager.open_in_turns",
            "Server.bind",
            "MetadataPublisher.subscribe",
            "ReplicaManager.catch_up",
            "LocalController.register_broker",
            "LogManager.start",
            "Server.serve",
        ]
        await node.stop()

    run(scenario)


def test_clients_go_first(steps: list[str]) -> None:
    async def scenario(world: SimWorld) -> None:
        node = Node(world.runtime("b1"), CONFIG)
        await node.start()
        del steps[:]
        await node.stop()
        assert steps == [
            "Server.stop_reading",
            "GroupCoordinator.close",
            "Server.abort",
            "RaftDriver.close",
            "LogManager.close",
            "LogManager.unlock",
        ]
        assert was_closed(world)

    run(scenario)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (RaftDriver, "start"),
        (LogManager, "open_in_turns"),
        (Server, "bind"),
        (ReplicaManager, "catch_up"),
        (LocalController, "register_broker"),
        (Server, "serve"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_start_that_fails_leaves_nothing_behind(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: SimWorld) -> None:
        tasks = asyncio.all_tasks()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _fail)
            with pytest.raises(OSError, match="planted"):
                await Node(world.runtime("b1"), CONFIG).start()
        assert asyncio.all_tasks() == tasks
        assert not was_closed(world)
        # The lock, the port and the files are free again.
        second = Node(world.runtime("b1"), CONFIG)
        await second.start()
        await second.stop()
        assert was_closed(world)

    run(scenario)


def _fail(*args: Any, **kwargs: Any) -> None:
    raise OSError("planted")


def test_a_node_that_is_locked_out_takes_nothing_from_the_other() -> None:
    async def scenario(world: SimWorld) -> None:
        first = Node(world.runtime("b1"), CONFIG)
        await first.start()
        with pytest.raises(Exception, match=LOG_DIR):
            await Node(world.runtime("b1"), CONFIG).start()
        await first.stop()
        assert was_closed(world)

    run(scenario)


def test_a_core_task_that_fails_ends_the_node_and_leaves_no_mark_of_a_clean_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail_later(self: ReplicaManager) -> None:
        await asyncio.sleep(3)
        raise LookupError("planted")

    async def scenario(world: SimWorld) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ReplicaManager, "run", fail_later)
            node = Node(world.runtime("b1"), CONFIG)
            await node.start()
            waiting = asyncio.ensure_future(node.wait_failed())
            await asyncio.sleep(1)
            assert not waiting.done()
            error = await waiting
            assert isinstance(error, LookupError)
            # Whoever asks later is told as well.
            assert await node.wait_failed() is error
            await node.stop()
        assert not was_closed(world)
        second = Node(world.runtime("b1"), CONFIG)
        await second.start()
        await second.stop()

    run(scenario)
