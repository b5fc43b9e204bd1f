"""Subscriptions of a foreign-key join: by foreign key, then by primary key."""

from __future__ import annotations

from typing import Any

from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend
from ottla.streams.state.pages import decode_page, encode_page


class SubscriptionStore:
    """All subscriptions of a foreign key lie under it, because an update of its row answers all of them."""

    __slots__ = ("_backend", "_dirty", "_foreign_key", "_pages", "_subscription", "name")

    def __init__(self, name: str, backend: Backend, foreign_key: Serde, subscription: Serde) -> None:
        self.name = name
        self._backend = backend
        self._foreign_key = foreign_key
        self._subscription = subscription
        self._pages: dict[bytes, dict[Any, bytes]] = {}
        self._dirty: set[bytes] = set()

    def put(self, foreign_key: Any, primary_key: Any, subscription: Any) -> None:
        """Set the subscription of a primary key; ``None`` ends it."""
        key = self._foreign_key.serialize(foreign_key) or b""
        page = self._load(key)
        data = self._subscription.serialize(subscription)
        if data is None:
            page.pop(primary_key, None)
        else:
            page[primary_key] = data
        self._dirty.add(key)

    def subscriptions(self, foreign_key: Any) -> list[Any]:
        page = self._load(self._foreign_key.serialize(foreign_key) or b"")
        return [self._subscription.deserialize(data) for data in page.values()]

    def flush(self) -> None:
        for key in sorted(self._dirty):
            page = self._pages[key]
            if page:
                self._backend.put(key, encode_page([(0, 0, data) for data in page.values()]))
            else:
                self._backend.delete(key)
        self._dirty.clear()
        self._pages.clear()

    def _load(self, key: bytes) -> dict[Any, bytes]:
        page = self._pages.get(key)
        if page is None:
            stored = self._backend.get(key)
            page = self._pages[key] = {}
            for _, _, data in [] if stored is None else decode_page(stored):
                if data is not None:
                    page[self._subscription.deserialize(data).primary_key] = data
        return page
