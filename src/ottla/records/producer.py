"""Who writes batches, as headers, transactions and requests name it."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.records.batch import NO_PRODUCER_ID

NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1


class ProducerIdentity(NamedTuple):
    id: int
    epoch: int
    """Of two with one id, the one with the lower epoch has been replaced, and is refused."""


NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)
