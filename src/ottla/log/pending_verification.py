"""Whether the coordinator knows of a transaction before a partition takes its first records.

A marker can end a transaction while the coordinator is being asked. Therefore each question has a
`Verification`, which a marker takes away: an answer that comes for one no longer there is stale, and records
that rely on it would open a transaction that nobody ends.
"""

from __future__ import annotations


class Verification:
    """A question under way, or answered; the same for all requests of a producer until records are written.

    Compared by identity.
    """

    __slots__ = ("asked_ms", "epoch", "implicit_add", "lowest_sequence")

    def __init__(self, asked_ms: int, sequence: int, epoch: int, *, implicit_add: bool) -> None:
        self.asked_ms = asked_ms
        self.lowest_sequence = sequence
        """While an earlier batch is yet to be written, later ones must not overtake it."""
        self.epoch = epoch
        self.implicit_add = implicit_add
        """Asking adds the partition to the transaction, and every transaction has an epoch of its own."""

    def note(self, sequence: int, epoch: int) -> None:
        """Another batch that needs the answer."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


ONGOING = Verification(0, 0, -1, implicit_add=False)
"""Nobody was asked: the transaction must be under way on the partition."""
EXEMPT = Verification(0, 0, -1, implicit_add=False)
"""transaction.partition.verification.enable is off."""
