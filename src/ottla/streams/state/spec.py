"""What a topology says about a store, and how a store is opened from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, log_nothing
from ottla.streams.state.buffer import KeyedBuffer, TimeOrderedBuffer
from ottla.streams.state.held import HeldKeyValueStore, HeldWindowStore, can_be_held
from ottla.streams.state.key_value import ExpiringStore, KeyValueStore
from ottla.streams.state.session import SessionStore
from ottla.streams.state.subscriptions import SubscriptionStore
from ottla.streams.state.versioned import VersionedStore
from ottla.streams.state.window import WindowStore

Store = KeyValueStore | VersionedStore | WindowStore | SessionStore | TimeOrderedBuffer | SubscriptionStore


class StoreKind(Enum):
    KEY_VALUE = "key-value"
    VERSIONED = "versioned key-value"
    WINDOW = "window"
    SESSION = "session"
    BUFFER = "buffer"
    KEYED_BUFFER = "keyed buffer"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A declared store. ``queryable`` ones have a name given by the user and are logged to a changelog
    topic."""

    name: str
    kind: StoreKind
    key: Serde
    value: Serde
    size_ms: int = 1
    # How long windows and sessions are kept, values that are not put again (0: for ever), or versions.
    retention_ms: int = 0
    retain_duplicates: bool = False
    queryable: bool = False
    logged: bool = True

    @property
    def changelog(self) -> str:
        return f"{self.name}-changelog"


def open_store(
    spec: StoreSpec, backend: Backend, log: Log = log_nothing, now_ms: Callable[[], int] = lambda: -1
) -> Store:
    """``now_ms`` tells the stream time of whoever uses it."""
    match spec.kind:
        case StoreKind.KEY_VALUE if spec.retention_ms:
            return ExpiringStore(
                spec.name, backend, spec.key, spec.value, ttl_ms=spec.retention_ms, now_ms=now_ms, log=log
            )
        case StoreKind.VERSIONED:
            return VersionedStore(
                spec.name, backend, spec.key, spec.value, history_ms=spec.retention_ms, log=log
            )
        case StoreKind.KEY_VALUE if can_be_held(spec.key, spec.value):
            return HeldKeyValueStore(spec.name, backend, spec.key, spec.value, log)
        case StoreKind.KEY_VALUE:
            return KeyValueStore(spec.name, backend, spec.key, spec.value, log)
        case StoreKind.WINDOW if can_be_held(spec.key, spec.value) and not spec.retain_duplicates:
            return HeldWindowStore(
                spec.name,
                backend,
                spec.key,
                spec.value,
                size_ms=spec.size_ms,
                retention_ms=spec.retention_ms,
                log=log,
            )
        case StoreKind.WINDOW:
            return WindowStore(
                spec.name,
                backend,
                spec.key,
                spec.value,
                size_ms=spec.size_ms,
                retention_ms=spec.retention_ms,
                retain_duplicates=spec.retain_duplicates,
                log=log,
            )
        case StoreKind.SESSION:
            return SessionStore(
                spec.name, backend, spec.key, spec.value, retention_ms=spec.retention_ms, log=log
            )
        case StoreKind.BUFFER:
            return TimeOrderedBuffer(spec.name, backend)
        case StoreKind.KEYED_BUFFER:
            return KeyedBuffer(spec.name, backend)
        case StoreKind.SUBSCRIPTIONS:
            return SubscriptionStore(spec.name, backend, spec.key, spec.value)
