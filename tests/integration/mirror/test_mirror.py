"""`ottla mirror` between two brokers: what arrives, under which names, and what happens when parts end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mirrors import create, mirroring, produce, properties, read, values_of

import ottla.testing
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def source() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def test_records_arrive_as_they_are(source: InProcessBroker, target: InProcessBroker) -> None:
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create(here, "whole")
    values = [f"value {number}" for number in range(1000)]
    for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
        produce(here, "whole", values, compression__type=codec, linger__ms=5)
    with mirroring(properties(here, there, topics="whole")):
        found = read(there, "a.whole", 5 * len(values))
        produce(here, "whole", ["the last", "of all"])
        found = read(there, "a.whole", 5 * len(values) + 2)
    assert found == read(here, "whole", 5 * len(values) + 2)
    assert values_of(found)[0][-1] == "the last"
