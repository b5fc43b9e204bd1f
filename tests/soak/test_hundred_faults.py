"""Three brokers through a hundred faults, one after the other, while clients write, read and commit.

OTTLA_SOAK_FAULTS=100 make soak PYTEST_ARGS=tests/soak/test_hundred_faults.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench import kafka_peer
from bench.maven import PeerUnavailable
from tests.integration.cluster.faults import keeping_logs, run_faults
from tests.integration.cluster.workload import TOPICS, create_topics
from tests.soak import java_writer
from tests.soak.java_writer import JavaWriter

from ottla.testing import BrokerCluster

FAULTS = int(os.environ.get("OTTLA_SOAK_FAULTS", "100"))
SEED = os.environ.get("OTTLA_SOAK_SEED", "1")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300 + 60 * FAULTS)]


def test_a_hundred_faults(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    with BrokerCluster(data_dir=str(tmp_path / "data"), relayed=False) as cluster:
        servers = cluster.bootstrap_servers
        create_topics(servers, [*TOPICS, java_writer.TOPIC])
        try:
            java = JavaWriter(kafka_peer.fetch(), servers, tmp_path)
        except PeerUnavailable as reason:
            say(f"without a Java producer: {reason}")
            java = None
        with keeping_logs(cluster, tmp_path):
            run_faults(cluster, FAULTS, f"faults/{SEED}", java, say)
