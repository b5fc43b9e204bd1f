"""The states of an application, with Kafka Streams' names, and who is told when one follows another.

CREATED ─► REBALANCING ◄─► RUNNING          REBALANCING: queries are being started, first or again
              ▲   │           │
              │   └─► PENDING_SHUTDOWN ─► NOT_RUNNING
              │                                │    started anew: back to REBALANCING
              └── ERROR ◄── any but NOT_RUNNING┘    a query has failed for good
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum

logger = logging.getLogger("ottla.streams")


class ApplicationState(Enum):
    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    ERROR = "ERROR"


# Called with the new state and the one before.
StateListener = Callable[[ApplicationState, ApplicationState], None]

_FOLLOWING = {
    ApplicationState.CREATED: {ApplicationState.REBALANCING, ApplicationState.PENDING_SHUTDOWN},
    ApplicationState.REBALANCING: {
        ApplicationState.RUNNING,
        ApplicationState.PENDING_SHUTDOWN,
        ApplicationState.ERROR,
    },
    ApplicationState.RUNNING: {
        ApplicationState.REBALANCING,
        ApplicationState.PENDING_SHUTDOWN,
        ApplicationState.ERROR,
    },
    ApplicationState.PENDING_SHUTDOWN: {ApplicationState.NOT_RUNNING},
    ApplicationState.NOT_RUNNING: {ApplicationState.REBALANCING},
    # Stopping what has failed does not hide that it has.
    ApplicationState.ERROR: {ApplicationState.REBALANCING},
}


class Life:
    """Where an application is in its life. Threads of its own and those of the program move it on."""

    def __init__(self) -> None:
        self._state = ApplicationState.CREATED
        self._lock = threading.Lock()
        self.listener: StateListener | None = None

    @property
    def state(self) -> ApplicationState:
        return self._state

    def move(self, following: ApplicationState) -> bool:
        """Whether it went there: not if it is there already, or cannot come there from where it is."""
        with self._lock:
            before = self._state
            if following not in _FOLLOWING[before]:
                return False
            self._state = following
            # In here, so that changes are told in the order in which they came.
            if self.listener is not None:
                try:
                    self.listener(following, before)
                except Exception:
                    logger.exception("the state listener failed on %s", following.name)
        return True
