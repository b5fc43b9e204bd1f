"""Brokers are added, removed and replaced, with a few partitions; `make soak` has a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cluster.operations import run_operations


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_come_and_go_under_load(tmp_path: Path) -> None:
    run_operations(tmp_path, partitions=6)
