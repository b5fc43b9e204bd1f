"""What everybody in a run around a cluster shares: its machines, what was promised, and how it is asked."""

from __future__ import annotations

import asyncio
import random

from ottla.sim.chaos.session import Session
from ottla.sim.checkers import History, InvariantViolation
from ottla.sim.cluster.forbidden import (
    ForgottenAccessChange,
    ForgottenVoterChange,
    LostCommittedOffset,
    SkippedByGroup,
)
from ottla.sim.cluster.machines import Machines
from ottla.sim.cluster.mixes import ClusterMix
from ottla.sim.cluster.routing import RoutedClient, Routes
from ottla.sim.transaction_checkers import (
    AbortedRead,
    TornTransaction,
    TransactionHistory,
    TwoOutcomesOfATransaction,
)
from ottla.sim.world import SimWorld

PLAIN, ONCE, TRANSACTIONAL = "plain", "once", "transactional"
PARTITIONS = 2
CREATION_MAX_S = 60.0


class ClusterSession(Session):
    def __init__(self, world: SimWorld, mix: ClusterMix) -> None:
        super().__init__(world, mix)
        self.cluster_mix = mix
        shapes, weights = zip(*mix.shapes, strict=True)
        shape = world.random("shape").choices(shapes, weights)[0]
        self.machines = Machines(world, shape, mix.properties, self.fail)
        self.voters = ForgottenVoterChange(self.machines.first_voters)
        self.access = ForgottenAccessChange()
        self.keeps_eligible = world.random("eligible").random() < 0.5
        """Eligible leader replicas (KIP-966) are on. Without them the last in sync leads again, whatever it
        has lost: then no power may be cut while others are out of reach."""
        self.killing = asyncio.Lock()
        """Held while processes die: who has lost its power is back before another one does."""
        self.history = History()
        # A new leader knows an older high watermark for a while, so stable offsets may go back.
        self.transactions = TransactionHistory(TornTransaction(), AbortedRead(), TwoOutcomesOfATransaction())
        self.offsets = LostCommittedOffset()
        self.group_progress = SkippedByGroup()

    def violated(self, violation: InvariantViolation) -> None:
        if not self.failed.done():
            self.failed.set_result(violation)

    def client(self, host: str, timeout_s: float = 3.0, routes: Routes | None = None) -> RoutedClient:
        return RoutedClient(
            self.world.runtime(host),
            self.machines.addresses,
            self.world.random(f"routes/{host}"),
            timeout_s,
            routes,
        )

    async def pause(self, chance: random.Random, mean_s: float) -> bool:
        await asyncio.sleep(chance.expovariate(1 / mean_s))
        return self.world.loop.time() < self.ends_at

    @property
    def stable_topics(self) -> tuple[str, ...]:
        """Those that nobody deletes."""
        mix = self.cluster_mix
        return tuple(
            name
            for name, is_used in (
                (PLAIN, mix.writers),
                (ONCE, mix.idempotent_writers),
                (TRANSACTIONAL, mix.transactional_writers),
            )
            if is_used
        )
