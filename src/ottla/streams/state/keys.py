"""Keys as bytes: an operator asks a store for a key and then writes it, so each is written out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.streams.serdes import Serde

# Of these, the same object has the same bytes again.
_IMMUTABLE = frozenset({str, int, bytes})
_NOTHING = object()


def key_writer(serde: Serde) -> Callable[[Any], bytes]:
    """Turns keys into bytes and knows those of the last one; a null key is empty."""
    serialize = serde.quick_writer()
    last_key: Any = _NOTHING
    last_bytes = b""

    def write(key: Any) -> bytes:
        nonlocal last_key, last_bytes
        if key is not last_key:
            last_bytes = serialize(key) or b""
            last_key = key if type(key) in _IMMUTABLE else _NOTHING
        return last_bytes

    return write
