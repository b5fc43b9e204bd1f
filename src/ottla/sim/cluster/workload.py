"""One run: a cluster, clients of all kinds and faults around it, then the reckoning.

    simulate_cluster(seed=7, mix=CLUSTER_MIXES["cluster"])

A run is a function of its seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.sim.chaos import requests
from ottla.sim.chaos.administration import Administration
from ottla.sim.chaos.load import Load
from ottla.sim.chaos.workload import Outcome, unless_failed
from ottla.sim.checkers import InvariantViolation
from ottla.sim.client import RequestFailed
from ottla.sim.cluster.changing_access import ChangingAccess
from ottla.sim.cluster.changing_voters import ChangingVoters
from ottla.sim.cluster.consuming import ClassicMember, ConsumerMember, Readers
from ottla.sim.cluster.faults import Faults
from ottla.sim.cluster.mixes import ClusterMix
from ottla.sim.cluster.moving import Moving
from ottla.sim.cluster.reckoning import Reckoning
from ottla.sim.cluster.session import (
    CREATION_MAX_S,
    ONCE,
    PARTITIONS,
    PLAIN,
    TRANSACTIONAL,
    ClusterSession,
)
from ottla.sim.cluster.transacting import Transacting
from ottla.sim.cluster.witness import Witness
from ottla.sim.cluster.writing import IdempotentWriter, Writing
from ottla.sim.world import SimWorld
from ottla.wire.errors import ErrorCode


def simulate_cluster(seed: int | str, mix: ClusterMix) -> Outcome:
    """InvariantViolation where something is seen that is forbidden."""
    with SimWorld(seed) as world:
        # How messages come in pieces is looked at with one broker.
        world.network.whole_chance = 0.95
        session = ClusterSession(world, mix)

        with Witness(session.counts, session.violated, session.machines.is_harmed):
            return world.run(_run(session))


async def _run(session: ClusterSession) -> Outcome:
    await unless_failed(session, asyncio.ensure_future(_begin(session)))
    session.ends_at = session.world.loop.time() + session.mix.seconds
    faults, transacting, access = Faults(session), Transacting(session), ChangingAccess(session)
    actors = [*_clients(session, transacting, access), faults.strike_processes(), faults.strike_the_world()]
    await unless_failed(session, asyncio.gather(*actors))
    reckoning = Reckoning(session, faults, transacting, access)
    await unless_failed(session, asyncio.ensure_future(reckoning.check()))
    return Outcome(session.world.trace.digest(), session.counts)


async def _begin(session: ClusterSession) -> None:
    await session.machines.start_all()
    client = session.client("founder")
    end = session.world.loop.time() + CREATION_MAX_S
    steps: list[Callable[[], Awaitable[object]]] = [
        partial(requests.create_topic, client, topic, PARTITIONS, {}) for topic in session.stable_topics
    ]
    if not session.keeps_eligible:
        steps.append(partial(requests.disable_feature, client, ELIGIBLE_LEADER_REPLICAS_VERSION))
    for step in steps:
        while True:
            try:
                await step()
                break
            except (RequestFailed, OSError) as error:
                if isinstance(error, RequestFailed) and error.code is ErrorCode.topic_already_exists:
                    break
                if session.world.loop.time() > end:
                    raise InvariantViolation(
                        "UnavailableThoughAMajorityLives", f"a new cluster cannot be set up: {error!r}"
                    ) from error
                await asyncio.sleep(0.1)


def _clients(
    session: ClusterSession, transacting: Transacting, access: ChangingAccess
) -> list[Coroutine[Any, Any, None]]:
    mix = session.cluster_mix
    readers, writing = Readers(session), Writing(session)
    actors = [writing.write(f"writer{number}") for number in range(mix.writers)]
    actors += [IdempotentWriter(session, f"once{number}").run() for number in range(mix.idempotent_writers)]
    actors += [transacting.transact(number) for number in range(mix.transactional_writers)]
    for topic in (PLAIN, ONCE):
        if topic in session.stable_topics:
            actors += [readers.read(topic, partition) for partition in range(PARTITIONS)]
    if TRANSACTIONAL in session.stable_topics:
        actors += [readers.read_committed(partition) for partition in range(PARTITIONS)]
    actors += [ClassicMember(session, f"classic{number}").run() for number in range(mix.classic_members)]
    actors += [ConsumerMember(session, f"consumer{number}").run() for number in range(mix.consumer_members)]
    if mix.administrators:
        administration, load = Administration(session), Load(session)
        actors += [administration.administer(f"admin{number}") for number in range(mix.administrators)]
        actors.append(load.write("topic-writer"))
    moving = Moving(session)
    actors += [moving.move(f"mover{number}") for number in range(mix.movers)]
    voters = ChangingVoters(session)
    actors += [voters.change(f"voter-changer{number}") for number in range(mix.voter_changers)]
    actors += [access.change(f"access-changer{number}") for number in range(mix.access_changers)]
    if mix.access_changers:
        actors.append(access.watch())
    return actors
