"""A hundred partitions move to a broker that is added, under load; it is removed; another loses its disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cluster.operations import run_operations

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_brokers_come_and_go_under_load(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    run_operations(tmp_path, partitions=100, say=say)
