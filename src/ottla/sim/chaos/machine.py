"""A broker that is started, stopped, killed and unplugged, and never ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.config import BrokerConfig
from ottla.node import Node
from ottla.runtime import Runtime
from ottla.sim.broker import PROPERTIES
from ottla.sim.disk import SimDisk
from ottla.sim.world import SimWorld

HOST = "b1"
START_MAX_S = 300.0
STOP_MAX_S = 120.0


class Machine:
    """The host of the broker. `fail` is told of which checker, what and why."""

    def __init__(
        self,
        world: SimWorld,
        properties: dict[str, str],
        fail: Callable[[str, str, BaseException | None], None],
    ) -> None:
        self._fail = fail
        self._world = world
        self._config = BrokerConfig.from_properties({**PROPERTIES, **properties})
        self._node: Node | None = None
        self._started = asyncio.Event()
        self.is_going_down = False
        """Connections may be lost: somebody stops or kills the broker."""
        self.is_serving = asyncio.Event()

    @property
    def disk(self) -> SimDisk:
        return self._world.host(HOST).disk

    @property
    def processes(self) -> int:
        return self._world.host(HOST).processes

    async def _boot(self, runtime: Runtime) -> None:
        node = Node(runtime, self._config)
        await node.start()
        self._node = node
        self._started.set()
        error = await node.wait_failed()
        self._fail("NodeThatFails", "the node gave up", error)

    async def start(self, *, may_refuse: bool = False) -> bool:
        """False: it refused, which only `may_refuse` allows."""
        self._started.clear()
        if self._world.host(HOST).boot is None:
            outcome = self._world.start(HOST, self._boot)
        else:
            booted = self._world.restart(HOST)
            assert booted is not None
            outcome = booted
        waiting = asyncio.ensure_future(self._started.wait())
        await asyncio.wait([outcome, waiting], timeout=START_MAX_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if outcome.done() and not outcome.cancelled() and (error := outcome.exception()) is not None:
            if not may_refuse:
                self._fail("NodeThatFails", "the broker does not start", error)
            self._world.crash(HOST, power_loss=False)
            return False
        if not self._started.is_set():
            # Died by a power cut that was under way, or hangs.
            if self._world.host(HOST).is_running:
                self._fail("NodeThatFails", f"the broker has not started within {START_MAX_S:.0f} s", None)
            return False
        return True

    def serve(self) -> None:
        """Let clients come again."""
        self.is_going_down = False
        self.is_serving.set()

    async def stop(self, *, may_fail: bool = False) -> None:
        """In good order; `may_fail` where there is no room to leave it."""
        self._goes_down()
        assert self._node is not None
        try:
            async with asyncio.timeout(STOP_MAX_S):
                await self._world.spawn(HOST, self._node.stop())
        except TimeoutError:
            self._fail("NodeThatFails", f"the broker has not stopped within {STOP_MAX_S:.0f} s", None)
        except Exception as error:
            if not may_fail:
                self._fail("NodeThatFails", "stopping failed", error)
        self._world.crash(HOST, power_loss=False)

    def kill(self, *, power_loss: bool) -> None:
        self._goes_down()
        self._world.crash(HOST, power_loss=power_loss)

    async def cut_power_within(self, operations: int) -> None:
        """In the middle of what it does to its disk."""
        host = self._world.host(HOST)
        self._goes_down()
        self._world.crash_mid_operation(HOST, operations)
        try:
            async with asyncio.timeout(5):
                await host.died.wait()
        except TimeoutError:
            self._world.crash(HOST, power_loss=True)

    def _goes_down(self) -> None:
        self.is_going_down = True
        self.is_serving.clear()
