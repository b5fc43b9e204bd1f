"""What changes of topics cost, where clients may only make so many of them (KIP-599).

Each partition that comes or goes counts. Clients that know of it are refused what comes too early, and try
again; older ones only have to wait afterwards.
"""

from __future__ import annotations

from datetime import timedelta

from kio.static.primitive import i32Timedelta

from ottla.handlers.context import RequestContext
from ottla.wire.errors import ThrottlingQuotaExceeded


class Charge:
    """What the items of one request cost."""

    def __init__(self, context: RequestContext, strict_since: int) -> None:
        session = context.session
        quotas = session.quotas
        self._context = context
        self._is_strict = context.version >= strict_since
        self._throttle_ms = session.throttle_ms
        self._bucket = None
        if quotas is not None and quotas.limits_requests:
            self._bucket = quotas.of(session).mutations
            self._now_ms = quotas.now_ms()

    def take(self, partitions: int) -> ThrottlingQuotaExceeded | None:
        bucket = self._bucket
        if bucket is None:
            return None
        wait_ms = bucket.throttle_ms(self._now_ms)
        if wait_ms and self._is_strict:
            self._throttle_ms = max(self._throttle_ms, wait_ms)
            return ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
        wait_ms = bucket.record(partitions, self._now_ms)
        if not self._is_strict:
            self._throttle_ms = max(self._throttle_ms, wait_ms)
        return None

    def settle(self) -> i32Timedelta:
        """How long the client has to wait, for the answer; its connection is not read until that is over."""
        if self._throttle_ms > self._context.session.throttle_ms:
            self._context.session.throttle(self._throttle_ms)
        return i32Timedelta.parse(timedelta(milliseconds=self._throttle_ms))
