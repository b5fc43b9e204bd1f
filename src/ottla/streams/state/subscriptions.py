"""Subscriptions of a foreign-key join: by foreign key, then by primary key."""

from __future__ import annotations

from typing import Any

from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend
from ottla.streams.state.entry_lists import Tally, decode_entries, encode_entries

_PREFIX = b"s"


class SubscriptionStore:
    """All subscriptions of a foreign key lie under it, because an update of its row answers all of them."""

    __slots__ = ("_backend", "_dirty", "_foreign_key", "_subscribers", "_subscription", "_tally", "name")

    def __init__(self, name: str, backend: Backend, foreign_key: Serde, subscription: Serde) -> None:
        self.name = name
        self._backend = backend
        self._foreign_key = foreign_key
        self._subscription = subscription
        self._subscribers: dict[bytes, dict[Any, bytes]] = {}
        self._dirty: set[bytes] = set()
        self._tally = Tally(backend)

    def put(self, foreign_key: Any, primary_key: Any, subscription: Any) -> None:
        """Set the subscription of a primary key; ``None`` ends it."""
        key = self._foreign_key.serialize(foreign_key) or b""
        subscribers = self._load(key)
        data = self._subscription.serialize(subscription)
        before = len(subscribers)
        if data is None:
            subscribers.pop(primary_key, None)
        else:
            subscribers[primary_key] = data
        self._tally.add(len(subscribers) - before)
        self._dirty.add(key)

    def subscriptions(self, foreign_key: Any) -> list[Any]:
        subscribers = self._load(self._foreign_key.serialize(foreign_key) or b"")
        return [self._subscription.deserialize(data) for data in subscribers.values()]

    def entry_count(self) -> int:
        return self._tally.entries

    def flush(self) -> None:
        self._tally.flush()
        for key in sorted(self._dirty):
            subscribers = self._subscribers[key]
            if subscribers:
                self._backend.put(
                    _PREFIX + key, encode_entries([(0, 0, data) for data in subscribers.values()])
                )
            else:
                self._backend.delete(_PREFIX + key)
        self._dirty.clear()
        self._subscribers.clear()

    def _load(self, key: bytes) -> dict[Any, bytes]:
        subscribers = self._subscribers.get(key)
        if subscribers is None:
            stored = self._backend.get(_PREFIX + key)
            subscribers = self._subscribers[key] = {}
            for _, _, data in [] if stored is None else decode_entries(stored):
                if data is not None:
                    subscribers[self._subscription.deserialize(data).primary_key] = data
        return subscribers
