"""Apache's own MirrorMaker 2 from and to Ottla, and with the state that `ottla mirror` left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from bench import kafka_peer, mirror_maker_peer
from bench.brokers import running
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.maven import PeerUnavailable
from tests.integration.mirror.mirrors import (
    consume,
    create,
    mirroring,
    produce,
    properties,
    read,
    records_of,
    values_of,
    wait_until,
)

import ottla.testing
from ottla.mirror.formats import read_checkpoint, read_offset_sync
from ottla.testing import InProcessBroker

pytestmark = [pytest.mark.soak, pytest.mark.maven]

ON_ONE_BROKER = {
    f"{name}replication.factor": "1"
    for name in (
        "",
        "heartbeats.topic.",
        "checkpoints.topic.",
        "offset-syncs.topic.",
        "offset.storage.",
        "status.storage.",
        "config.storage.",
    )
}


@pytest.fixture(scope="module")
def mirror_maker() -> KafkaDistribution:
    try:
        return mirror_maker_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def kafka(mirror_maker: KafkaDistribution) -> Iterator[str]:
    with running(ApacheKafka(kafka_peer.fetch())) as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="module")
def first() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def last() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.mark.timeout(500)
def test_mirrormaker_goes_on_where_ours_was_and_back(
    first: InProcessBroker, kafka: str, mirror_maker: KafkaDistribution
) -> None:
    """Both keep positions in the same topic: nothing is lost or repeated when one takes over."""
    here = first.bootstrap_servers
    create(here, "handed", 2)
    settings = properties(here, kafka, topics="handed", groups="shift")
    for name in [name for name in settings if "interval" in name]:
        settings[name] = "1"
    theirs = settings | ON_ONE_BROKER
    theirs |= {"a.consumer.isolation.level": "read_committed"}
    theirs |= {"exactly.once.source.support": "enabled"}
    sent: list[str] = []

    def send(part: int) -> None:
        values = [f"{part}-{number}" for number in range(200)]
        produce(here, "handed", values)
        sent.extend(values)

    def wait_mirrored() -> None:
        # A transaction that one of them left open has to time out before the other knows how far it came.
        assert sum(map(len, read(kafka, "a.handed", len(sent), wait_s=150))) == len(sent)

    send(0)
    with mirroring(settings):
        wait_mirrored()
    send(1)
    consume(here, "handed", "shift", 100)
    with mirror_maker_peer.running(mirror_maker, theirs):
        send(2)
        wait_mirrored()
        wait_until(lambda: records_of(kafka, "a.checkpoints.internal"), "checkpoints")
    send(3)
    with mirroring(settings):
        wait_mirrored()
    found = values_of(read(kafka, "a.handed", len(sent) + 1, wait_s=10))
    assert found == [sent[0::2], sent[1::2]]
    key = b'["MirrorSourceConnector",{"cluster":"a","partition":1,"topic":"handed"}]'
    kept = [value or b"" for found, value in records_of(kafka, "mm2-offsets.a.internal") if found == key]
    assert json.loads(kept[-1])["offset"] == len(sent) // 2 - 1
    for name, value in records_of(kafka, "a.checkpoints.internal"):
        assert read_checkpoint(name, value or b"").group == "shift"
    for name, value in records_of(here, "mm2-offset-syncs.b.internal"):
        read_offset_sync(name, value or b"")


@pytest.mark.timeout(300)
def test_mirrormaker_mirrors_from_and_to_ottla(
    first: InProcessBroker, last: InProcessBroker, mirror_maker: KafkaDistribution
) -> None:
    here, there = first.bootstrap_servers, last.bootstrap_servers
    create(here, "theirs", 2)
    values = [f"{number}" for number in range(1000)]
    produce(here, "theirs", values)
    settings = properties(here, there, topics="theirs") | ON_ONE_BROKER
    for name in [name for name in settings if "interval" in name]:
        settings[name] = "1"
    with mirror_maker_peer.running(mirror_maker, settings) as maker:
        found = read(there, "a.theirs", 1000)
        assert values_of(found) == [values[0::2], values[1::2]], maker.output.read_text()[-3000:]
    assert found == read(here, "theirs", 1000)
