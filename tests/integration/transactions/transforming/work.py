"""What a transformer is told, and how it tells where it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Called at every step with its name: joined, begun, sent, offsets, committed, aborted, idle."""

RECORDS_PER_TRANSACTION = 4
ABORTED = b"aborted:"
"""Before the values of what is sent in a transaction that will be aborted."""
ABORT_CHANCE = 0.15


@dataclass(frozen=True, slots=True)
class Work:
    bootstrap_servers: str
    source: str
    target: str
    group: str
    seed: int
    transaction_timeout_ms: int = 30_000
    protocol: str = "classic"
    """Of the group."""

    def chance(self) -> random.Random:
        return random.Random(self.seed)

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-transformer"


def transformed(partition: int, offset: int, *, aborted: bool) -> bytes:
    value = b"%d:%d" % (partition, offset)
    return ABORTED + value if aborted else value
