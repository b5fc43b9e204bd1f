"""One run: administrators, writers, readers, groups and faults around one broker, then the reckoning.

    simulate_chaos(seed=7, mix=MIXES["admin"])

A run is a function of its seed. The node must never fail; what was promised is looked for at the end, and
then the broker must take records again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from ottla.sim.chaos.administration import Administration
from ottla.sim.chaos.faults import Faults
from ottla.sim.chaos.load import Load
from ottla.sim.chaos.mixes import Mix
from ottla.sim.chaos.reckoning import Reckoning
from ottla.sim.chaos.session import GROUPS, BrokerSession, Session
from ottla.sim.world import SimWorld

ADMINISTRATORS = 2
WRITERS = 2
TRANSACTIONAL_WRITERS = 2


class Outcome(NamedTuple):
    digest: str
    """The same for every run of a seed."""
    counts: Counter[str]
    """Operations and how they ended, faults, records."""


def simulate_chaos(seed: int | str, mix: Mix) -> Outcome:
    """InvariantViolation where the broker breaks a promise."""
    with SimWorld(seed) as world:
        return world.run(_run(BrokerSession(world, mix)))


async def _run(session: BrokerSession) -> Outcome:
    await session.come_up()
    session.ends_at = session.world.loop.time() + session.mix.seconds
    administration, load = Administration(session), Load(session)
    actors = [administration.administer(f"admin{number}") for number in range(ADMINISTRATORS)]
    actors += [load.write(f"writer{number}") for number in range(WRITERS)]
    actors.append(load.read("reader"))
    if session.mix.groups:
        actors += [load.follow_in_group(group) for group in GROUPS]
    if session.mix.transactions:
        actors += [load.write_in_transactions(f"x{number}") for number in range(TRANSACTIONAL_WRITERS)]
    if session.mix.faults:
        actors.append(Faults(session, administration).break_things())
    await unless_failed(session, asyncio.gather(*actors))
    await unless_failed(session, asyncio.ensure_future(Reckoning(session).check()))
    return Outcome(session.world.trace.digest(), session.counts)


async def unless_failed(session: Session, work: asyncio.Future[Any]) -> None:
    failed: asyncio.Future[Any] = session.failed
    await asyncio.wait([work, failed], return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        work.cancel()
        raise failed.result()
    work.result()
