"""One Spark session for all tests: starting one takes longer than most of them.

With pytest-xdist all of them run in one worker (`--dist loadgroup`), so that only one Java machine is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if item.config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
    from ottla.spark.java import JavaMissing
    from ottla.spark.session import spark_session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    log_dir = str(tmp_path_factory.mktemp("spark"))
    try:
        session = spark_session("ottla-tests", master="local[2]", settings=settings, log_dir=log_dir)
    except JavaMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
