"""One Spark session for all tests: starting one takes longer than most of them.

With pytest-xdist all of them run in one worker (`--dist loadgroup`), so that only one Java machine is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable

from ottla.testing import InProcessBroker

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


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.maven)])
def any_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Ottla broker, and once more of an Apache Kafka one."""
    if request.param == "ottla":
        with InProcessBroker() as broker:
            yield broker.bootstrap_servers
        return
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("kafka")
    with started(ApacheKafka(distribution), str(home / "data"), home / "kafka.out") as kafka:
        yield f"127.0.0.1:{kafka.port}"
