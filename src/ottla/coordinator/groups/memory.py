"""How much members may make this broker keep: what they say to each other has no other limit.

Bytes are counted as they come, with an allowance for each thing that Python makes of them. A group is told no
before anything of the request is kept, so what is counted is what is held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.host.journal import Instant
from ottla.wire.errors import GroupMaxSizeReached

log = logging.getLogger(__name__)

MEMBER_BYTES = 1024
"""Of a member that says nothing: itself, its deadlines, its place among the others."""
NAME_BYTES = 128
"""Of a name in a set or a table, besides its characters."""
_MEBIBYTE = 1024 * 1024
_UNLIMITED = 1 << 62
_RECORD_SPARE_BYTES = 1024
"""For the header of a batch, the key, and what members have no part in."""
_SAID_AGAIN_AFTER_MS = 60_000


def names_bytes(names: Iterable[str]) -> int:
    return sum(NAME_BYTES + len(name) for name in names)


class GroupMemory:
    """Of all groups of a broker. Their sum is an upper bound, counted anew only when it matters."""

    def __init__(
        self,
        settings: GroupSettings,
        measure: Callable[[], int],
        record_bytes_max: Callable[[], int] = lambda: _UNLIMITED,
    ) -> None:
        """`measure` what all groups hold; the most that one of their records can have."""
        self._settings = settings
        self._measure = measure
        self._record_bytes_max = record_bytes_max
        self._sum_bytes_max = 0
        self._says_again_ms = 0

    def check(self, group_id: str, held_bytes: int, more_bytes: int, now: Instant) -> None:
        """Raises GroupMaxSizeReached if a group that holds so much must not hold so much more."""
        if more_bytes <= 0:
            return
        limit = self._settings.group_bytes_max
        if held_bytes + more_bytes > limit:
            reason = (
                f"members of group {group_id} would take {_mebibytes(held_bytes + more_bytes)} of metadata "
                f"and assignments; ottla.group.max.bytes={limit} is the most"
            )
            raise self._refusal(reason, now)
        limit = self._settings.groups_bytes_max
        if self._sum_bytes_max + more_bytes > limit:
            self._sum_bytes_max = self._measure()
            if self._sum_bytes_max + more_bytes > limit:
                together = _mebibytes(self._sum_bytes_max + more_bytes)
                reason = (
                    f"group {group_id} asks for {_mebibytes(more_bytes)} beside its "
                    f"{_mebibytes(held_bytes)}, and all groups of this broker would take {together} then; "
                    f"ottla.groups.max.bytes={limit} is the most"
                )
                raise self._refusal(reason, now)
        self._sum_bytes_max += more_bytes

    def check_record(self, group_id: str, record_bytes: int, now: Instant) -> None:
        """Raises GroupMaxSizeReached if so much cannot be stored as one record.

        An append that the log refuses has every group of the shard loaded again: it must not come to that.
        """
        limit = self._record_bytes_max()
        if record_bytes + _RECORD_SPARE_BYTES > limit:
            reason = (
                f"{_mebibytes(record_bytes)} of group {group_id} cannot be stored as one record; "
                f"max.message.bytes={limit} of __consumer_offsets is the most"
            )
            raise self._refusal(reason, now)

    def _refusal(self, reason: str, now: Instant) -> GroupMaxSizeReached:
        if now.monotonic_ms >= self._says_again_ms:
            self._says_again_ms = now.monotonic_ms + _SAID_AGAIN_AFTER_MS
            log.warning(
                "refusing a member: %s. Look at who joins with ottla consumer-groups --describe --members, "
                "or raise the setting",
                reason,
            )
        return GroupMaxSizeReached(reason)


def _mebibytes(size: int) -> str:
    return f"{size / _MEBIBYTE:.1f} MiB"
