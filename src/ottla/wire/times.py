"""Moments and periods as kio has them, whose types hold less than the 64 bits of the protocol.

What does not fit becomes the furthest that does: who says "for ever" with the largest number there is means
no more than that.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

from kio.static.primitive import TZAware, i64Timedelta

PERIOD_MS_MAX = (2**63 - 1) // 1000
"""kio counts microseconds."""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT_MS_MAX = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _BEGINNING) // timedelta(milliseconds=1)

FURTHEST_MS = {
    "timedelta_i64": (-PERIOD_MS_MAX, PERIOD_MS_MAX),
    "datetime_i64": (-1, MOMENT_MS_MAX),
}
"""By kio's names of types."""


def period(ms: int) -> i64Timedelta:
    return i64Timedelta.parse(timedelta(milliseconds=min(ms, PERIOD_MS_MAX)))


def moment(ms: int) -> TZAware:
    """None, see `wire.nullable`, before 1970. kio's type knows whole seconds, but it writes all."""
    if ms < 0:
        return cast(TZAware, None)
    return cast(TZAware, _BEGINNING + timedelta(milliseconds=min(ms, MOMENT_MS_MAX)))
