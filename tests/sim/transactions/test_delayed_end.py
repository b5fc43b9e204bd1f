"""A request to end a transaction that gets lost in the network and arrives in the middle of the next one.

Under the protocol of before KIP-890 both transactions have the same producer epoch, so it ends the wrong one
(KAFKA-17754). Since then every transaction has an epoch of its own, and it is too late.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.sim.broker import PORT, broker
from ottla.sim.client import SimClient
from ottla.sim.transactions import NEW, OLD, SimProducer, Versions, read_stable
from ottla.sim.world import SimWorld, simulate
from ottla.wire.errors import ErrorCode

WRONG = b"of a transaction that its producer never committed"


async def values(client: SimClient) -> list[bytes | None]:
    return [record.value for record in (await read_stable(client, "t", 0, 0)).records]


async def delayed_end(world: SimWorld, versions: Versions, *, committed: bool) -> tuple[Any, ...]:
    """What the late request is answered, then what readers see in mid-transaction and after its end."""
    world.start("b1", broker())
    await asyncio.sleep(1)
    client = SimClient(world.runtime("c1"), "b1", PORT)
    await client.create_topic("t")
    producer = SimProducer(world.runtime("c1"), client, "id", versions=versions)
    await producer.init()
    await producer.send("t", 0, [b"first"])
    late = producer.end_request(committed=committed)  # sent, but held up on its way
    await producer.end(committed=committed)  # sent again over another connection, and answered
    await producer.send("t", 0, [WRONG])
    answer = await SimClient(world.runtime("network"), "b1", PORT).send(late)
    await asyncio.sleep(1)
    seen = await values(client)
    try:
        await producer.end(committed=not committed)
        outcome = ErrorCode.none
    except Exception as error:
        outcome = getattr(error, "code", error)
    await asyncio.sleep(1)
    return answer.error_code, seen, outcome, await values(client)


@pytest.mark.parametrize("seed", range(5))
def test_with_the_old_protocol_it_commits_what_was_to_be_aborted(seed: int) -> None:
    """Nothing on the broker's side can tell the request from one in time: this shows what NEW is for."""
    answer, seen, _, end = simulate(lambda world: delayed_end(world, OLD, committed=True), seed=seed)
    assert answer is ErrorCode.none
    assert seen == [b"first", WRONG]
    assert end == [b"first", WRONG], "and it cannot be taken back"


@pytest.mark.parametrize("seed", range(5))
def test_with_the_new_protocol_it_commits_nothing(seed: int) -> None:
    _, seen, outcome, end = simulate(lambda world: delayed_end(world, NEW, committed=True), seed=seed)
    assert seen == [b"first"]
    assert outcome is ErrorCode.none, "the producer's own request counts"
    assert end == [b"first"]


@pytest.mark.parametrize("seed", range(5))
def test_with_the_old_protocol_it_aborts_what_was_to_be_committed(seed: int) -> None:
    _, seen, outcome, end = simulate(lambda world: delayed_end(world, OLD, committed=False), seed=seed)
    assert seen == []
    assert outcome is not ErrorCode.none or end == [], "committed in the producer's eyes, and lost"


@pytest.mark.parametrize("seed", range(5))
def test_with_the_new_protocol_it_aborts_nothing(seed: int) -> None:
    _, _, outcome, end = simulate(lambda world: delayed_end(world, NEW, committed=False), seed=seed)
    assert outcome is ErrorCode.none
    assert end == [WRONG]
