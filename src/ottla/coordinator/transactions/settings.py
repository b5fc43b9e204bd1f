"""The broker's settings that transactions go by, read once into typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ConfigView(Protocol):
    def integer(self, name: str) -> int: ...

    def boolean(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int = 900_000
    abort_check_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    id_expiration_check_interval_ms: int = 3_600_000
    two_phase_commit: bool = False

    @classmethod
    def from_config(cls, config: ConfigView) -> TransactionSettings:
        return cls(
            timeout_max_ms=config.integer("transaction.max.timeout.ms"),
            abort_check_interval_ms=config.integer(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            id_expiration_ms=config.integer("transactional.id.expiration.ms"),
            id_expiration_check_interval_ms=config.integer(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            two_phase_commit=config.boolean("transaction.two.phase.commit.enable"),
        )
