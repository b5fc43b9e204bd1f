"""Apache Kafka on the other side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench import kafka_peer
from bench.brokers import running
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Where a broker of Apache Kafka is."""
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    quick = "group.initial.rebalance.delay.ms=0\noffsets.topic.num.partitions=1\n"
    quick += "transaction.state.log.num.partitions=1\n"
    with running(ApacheKafka(distribution, settings=quick)) as broker:
        yield f"127.0.0.1:{broker.port}"
