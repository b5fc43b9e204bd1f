"""Who of the brokers is alive, as the active controller hears of it: heartbeats, and how far each has read.

Nothing of it is in the log. A controller that takes over begins anew, and gives all that are not fenced a
whole session's time to find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.metadata.features import supported_features
from ottla.metadata.image import BrokerImage, MetadataImage

RECONNECT_MS = 1000


class BrokerEpoch(NamedTuple):
    broker_id: int
    epoch: int


@dataclass(slots=True)
class _Session:
    epoch: int
    heard_ms: int
    metadata_offset: int = -1
    is_heard: bool = True
    """By this controller, and not only presumed to be alive because it was with the one before."""
    missed_ms: int | None = None
    """When it is over although the time-out is not: the connection that heartbeats came on is gone."""


class BrokerSessions:
    def __init__(self, node_id: int, timeout_ms: int, heartbeat_ms: int) -> None:
        """`node_id` is the controller's own node: its broker lives as long as anybody is here to ask.

        `heartbeat_ms` is the time between two heartbeats of a broker.
        """
        self._node_id = node_id
        self._timeout_ms = timeout_ms
        self._heartbeat_ms = heartbeat_ms
        self._sessions: dict[int, _Session] = {}
        self._shutdown_offsets: dict[int, int] = {}
        self._checked_ms: int | None = None

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        self._sessions.clear()
        self._shutdown_offsets.clear()
        self._checked_ms = now_ms
        for broker in image.brokers.values():
            # The controller's own broker says itself that it is there, or starts just now.
            if not broker.fenced and broker.id != self._node_id:
                self._sessions[broker.id] = _Session(broker.epoch, now_ms, is_heard=False)
                if broker.in_controlled_shutdown:
                    self._shutdown_offsets[broker.id] = image.offset

    def heard(self, broker: BrokerEpoch, metadata_offset: int, now_ms: int) -> None:
        session = self._sessions.get(broker.broker_id)
        if session is None or session.epoch != broker.epoch:
            self._sessions[broker.broker_id] = _Session(broker.epoch, now_ms, metadata_offset)
            self._shutdown_offsets.pop(broker.broker_id, None)
        else:
            session.heard_ms = now_ms
            session.is_heard = True
            session.metadata_offset = metadata_offset
            session.missed_ms = None

    def cut_off(self, broker: BrokerImage, now_ms: int) -> None:
        """The kernel closes the connections of a process that dies: no need to wait for all of a session.

        A broker of this version that only lost its connection makes another at once (`membership/life.py`);
        others do so with their next heartbeat.
        """
        session = self._sessions.get(broker.id)
        if session is not None and session.epoch == broker.epoch and session.missed_ms is None:
            at_once = broker.features == supported_features()
            session.missed_ms = (
                now_ms + RECONNECT_MS if at_once else session.heard_ms + self._heartbeat_ms * 3 // 2
            )

    def cut_off_now(self, now_ms: int) -> list[BrokerEpoch]:
        """Those that were cut off and may come back yet."""
        return [
            BrokerEpoch(broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if session.missed_ms is not None and not self._is_over(session, now_ms)
        ]

    def gone(self, broker: BrokerEpoch, now_ms: int) -> None:
        """It does not come back: unless it has been heard of since it was cut off, its session is over."""
        session = self._sessions.get(broker.broker_id)
        if session is not None and session.epoch == broker.epoch and session.missed_ms is not None:
            session.missed_ms = now_ms - 1

    def forget(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def is_live(self, broker: BrokerEpoch, now_ms: int) -> bool:
        session = self._sessions.get(broker.broker_id)
        return session is not None and session.epoch == broker.epoch and not self._is_over(session, now_ms)

    def is_heard(self, broker: BrokerEpoch, now_ms: int) -> bool:
        """It is live, and this controller has heard so from itself."""
        return self.is_live(broker, now_ms) and self._sessions[broker.broker_id].is_heard

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Its leaderships have moved away as of this offset, which others have to read before it stops."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def others_know_of_shutdown(self, image: MetadataImage, broker_id: int) -> bool:
        """The controller's own broker does as soon as anybody: it reads what is committed here."""
        offset = self._shutdown_offsets.get(broker_id, -1)
        return all(
            session.metadata_offset >= offset
            for other, session in self._sessions.items()
            if other not in (broker_id, self._node_id)
            and other in image.brokers
            and image.brokers[other].active
        )

    def expired(self, image: MetadataImage, now_ms: int) -> list[BrokerEpoch]:
        """Brokers that are not fenced and not heard of for too long, oldest first.

        To be called several times per session. Whoever could not ask for a while (a machine that stood still,
        a busy event loop) could not hear either: that time does not count against the brokers.
        """
        checked_ms, self._checked_ms = self._checked_ms, now_ms
        if checked_ms is not None and now_ms - checked_ms > self._timeout_ms // 2:
            for session in self._sessions.values():
                session.heard_ms = min(session.heard_ms + now_ms - checked_ms, now_ms)
                if session.missed_ms is not None:
                    session.missed_ms += now_ms - checked_ms
        over = []
        for broker in image.brokers.values():
            if broker.fenced or broker.id == self._node_id:
                continue
            known = self._sessions.get(broker.id)
            if known is None or known.epoch != broker.epoch:
                # Whoever is let in is watched, whatever became of the session it came with.
                self._sessions[broker.id] = _Session(broker.epoch, now_ms)
            elif self._is_over(known, now_ms):
                over.append((known.heard_ms, BrokerEpoch(broker.id, broker.epoch)))
        return [broker for _, broker in sorted(over)]

    @property
    def check_interval_ms(self) -> int:
        return max(min(self._timeout_ms // 8, 250), 1)

    def _is_over(self, session: _Session, now_ms: int) -> bool:
        if session.missed_ms is not None and now_ms > session.missed_ms:
            return True
        return now_ms - session.heard_ms > self._timeout_ms
