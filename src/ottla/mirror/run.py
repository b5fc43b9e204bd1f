"""A process that mirrors: all flows of its settings, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from ottla.mirror.errors import SettingError
from ottla.mirror.flow import Flow
from ottla.mirror.settings import FlowSettings, ignored_settings, read_settings
from ottla.runtime.net import AsyncioNetwork, Network

_log = logging.getLogger(__name__)


class Mirror:
    """`async with Mirror(properties) as mirror:` mirrors until the end of the block. Raises SettingError."""

    def __init__(
        self,
        properties: Mapping[str, str],
        targets: Sequence[str] | None = None,
        network: Network | None = None,
    ) -> None:
        """`targets`: aliases of clusters; nothing is written to others by this process."""
        settings = read_settings(properties)
        unknown = set(targets or ()) - {flow.target.alias for flow in settings}
        if unknown:
            raise SettingError(f"nothing is mirrored to {', '.join(sorted(unknown))}")
        self.settings: Sequence[FlowSettings] = [
            flow for flow in settings if not targets or flow.target.alias in targets
        ]
        for text in ignored_settings(properties):
            _log.warning(text)
        self._network = network or AsyncioNetwork()
        self.flows: list[Flow] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Mirror:
        self.flows = [Flow(self._network, settings) for settings in self.settings]
        self._tasks = [asyncio.create_task(flow.run(), name=flow.settings.name) for flow in self.flows]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait(self) -> None:
        """Until a flow ends, which only a mistake of ours makes it do."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def report(mirror: Mirror, interval_s: float) -> None:
    """Says from time to time what was done since."""
    before = [(0, 0)] * len(mirror.flows)
    last = time.monotonic()
    while True:
        await asyncio.sleep(interval_s)
        now = time.monotonic()
        for index, flow in enumerate(mirror.flows):
            records, size = flow.mirrored.records, flow.mirrored.bytes
            done, done_bytes = records - before[index][0], size - before[index][1]
            if done:
                _log.info(
                    "%s: %d records/s, %.1f MB/s, %d records in all",
                    flow.settings.name, done / (now - last), done_bytes / 1e6 / (now - last), records,
                )  # fmt: skip
            before[index] = records, size
        last = now
