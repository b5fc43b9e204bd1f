"""An answer that comes later: a long poll, or a request that waits for the metadata log."""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime.disk import ReadableBuffer


class PendingReply:
    """Completed once by the handler; read by the connection, which keeps replies in request order."""

    __slots__ = (
        "_notify",
        "_on_cancel",
        "_on_hurry",
        "body",
        "correlation_id",
        "error",
        "flexible",
        "is_alone",
        "size",
    )

    def __init__(
        self,
        on_cancel: Callable[[], object],
        on_hurry: Callable[[], object] | None = None,
        *,
        is_alone: bool = False,
    ) -> None:
        self.is_alone = is_alone
        """The connection takes no further request until this one is answered."""
        self.body: list[ReadableBuffer] | None = None
        self.error: BaseException | None = None
        self.correlation_id = 0
        self.flexible = False
        self.size = 0
        """In bytes; kept here by the connection while a finished reply waits for its turn."""
        self._on_cancel = on_cancel
        self._on_hurry = on_hurry
        self._notify: Callable[[PendingReply], None] | None = None

    def bind(self, correlation_id: int, flexible: bool, notify: Callable[[PendingReply], None]) -> None:
        self.correlation_id = correlation_id
        self.flexible = flexible
        self._notify = notify

    def complete(self, body: list[ReadableBuffer]) -> None:
        self.body = body
        if self._notify is not None:
            self._notify(self)

    def fail(self, error: BaseException) -> None:
        """There is no answer; the connection has to be closed."""
        self.error = error
        if self._notify is not None:
            self._notify(self)

    @property
    def waits_for_more(self) -> bool:
        """It could be answered now, with less than was asked for."""
        return self._on_hurry is not None and self.body is None

    def tell_before(self, told: Callable[[], None]) -> None:
        """Call it when the answer is there, before the connection takes it; at once if it is there."""
        notify = self._notify
        if self.body is not None:
            told()
        elif notify is not None:

            def tell(reply: PendingReply) -> None:
                told()
                notify(reply)

            self._notify = tell

    def hurry(self) -> None:
        """The broker is stopping: answer now if waiting was only for more."""
        if self._on_hurry is not None and self.body is None:
            self._on_hurry()

    def cancel(self) -> None:
        """The client is gone. What was appended stays; only the waiting ends."""
        self._notify = None
        self._on_cancel()
