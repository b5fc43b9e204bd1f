"""Commands of REST that come at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ottla.connect.herder import Herder
from ottla.connect.state.configs import Configs, connector_entries
from ottla.connect.state.entries import Entry


def test_of_two_changes_at_once_neither_is_lost() -> None:
    async def change() -> dict[str, Any]:
        configs = Configs()
        for each in connector_entries("c", {"name": "c"}):
            configs.apply(each)

        async def append(entries: Sequence[Entry]) -> None:
            await asyncio.sleep(0)
            for each in entries:
                configs.apply(each)

        herder = Herder.__new__(Herder)
        herder.configs, herder._changing = configs, asyncio.Lock()
        herder.foreman = SimpleNamespace(append_config=append)  # type: ignore[assignment]
        fine = SimpleNamespace(refuse=lambda: None)
        herder.validator = SimpleNamespace(validate=lambda given: fine)  # type: ignore[assignment]
        changes = [herder.patch_connector("c", {f"setting.{number}": "1"}) for number in range(5)]
        await asyncio.gather(*changes)
        return dict(configs.connectors["c"].config)

    assert asyncio.run(change()) == {"name": "c"} | {f"setting.{number}": "1" for number in range(5)}
