"""Clusters of nodes of Ottla and of Apache Kafka."""

from __future__ import annotations

import pytest
from bench import kafka_peer
from bench.kafka_peer import KafkaDistribution
from bench.maven import PeerUnavailable


@pytest.fixture(scope="session")
def distribution() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
