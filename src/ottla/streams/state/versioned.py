"""Versioned store (KIP-889): what a key's value was at a time, as far back as the history goes.

The versions of one key form one list. The last one stays until another follows; those before leave when they
were followed longer ago than the history goes, measured from the latest timestamp ever put.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ottla.streams.records import ValueAndTimestamp
from ottla.streams.serdes import Serde
from ottla.streams.state.backend import Backend, Log, end_of_prefix, log_nothing
from ottla.streams.state.entry_lists import Entry, EntryLists, Tally, decode_entries
from ottla.streams.state.keys import key_writer
from ottla.streams.state.latest_time import LatestTime
from ottla.streams.state.time_index import TimeIndex

NOT_PUT: Final = -(1 << 63)
"""What ``put`` returns for a version older than the history goes."""
UNDEFINED: Final = -1
"""What ``put`` returns for a version that none follows."""

_VERSIONS = b"v"


class VersionedStore:
    __slots__ = (
        "_backend",
        "_history_ms",
        "_index",
        "_key",
        "_key_bytes",
        "_latest",
        "_lists",
        "_log",
        "_tally",
        "_value",
        "name",
    )

    def __init__(
        self,
        name: str,
        backend: Backend,
        key: Serde,
        value: Serde,
        *,
        history_ms: int,
        log: Log = log_nothing,
    ) -> None:
        self.name = name
        self._log = log
        self._backend = backend
        self._key = key
        self._key_bytes = key_writer(key)
        self._value = value
        self._history_ms = history_ms
        # A version is its timestamp and its value; a deletion is one without a value.
        self._lists = EntryLists(backend, _VERSIONS)
        # By when a version was followed by the next.
        self._index = TimeIndex(backend)
        self._latest = LatestTime(backend)
        self._tally = Tally(backend)

    def put(self, key: Any, value: Any, timestamp_ms: int) -> int:
        """Set the value from a time on; ``None`` deletes. Gives until when it is valid: the timestamp of the
        version that follows, ``UNDEFINED`` if none does, or ``NOT_PUT``."""
        key_bytes, data = self._key_bytes(key), self._value.serialize(value)
        until_ms = self._set(key_bytes, data, timestamp_ms)
        if until_ms != NOT_PUT:
            self._log(key_bytes, data, timestamp_ms)
        return until_ms

    def delete(self, key: Any, timestamp_ms: int) -> ValueAndTimestamp | None:
        """Delete from a time on; gives what was there then."""
        present = self.get_as_of(key, timestamp_ms)
        self.put(key, None, timestamp_ms)
        return present

    def get(self, key: Any) -> Any:
        found = self.get_with_timestamp(key)
        return None if found is None else found.value

    def get_with_timestamp(self, key: Any) -> ValueAndTimestamp | None:
        versions = self._lists.get(self._key_bytes(key))
        return self._shown(versions[-1]) if versions else None

    def get_as_of(self, key: Any, time_ms: int) -> ValueAndTimestamp | None:
        """What was valid at a time; nothing if that is longer ago than the history goes, unless it still
        is."""
        versions = self._lists.get(self._key_bytes(key))
        if not versions or time_ms >= versions[-1][0]:
            return self._shown(versions[-1]) if versions else None
        if time_ms < self._oldest_ms():
            return None
        valid = [version for version in versions if version[0] <= time_ms]
        return self._shown(valid[-1]) if valid else None

    def all(self) -> Iterator[tuple[Any, Any]]:
        """The present value of every key, in the order of their bytes."""
        self._lists.flush()
        for key, data in self._backend.scan(_VERSIONS, end_of_prefix(_VERSIONS)):
            shown = self._shown(decode_entries(data)[-1])
            if shown is not None:
                yield self._key.deserialize(key[len(_VERSIONS) :]), shown.value

    def entry_count(self) -> int:
        """Versions, deletions among them."""
        return self._tally.entries

    def restore(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Take an entry of the changelog."""
        self._set(key, value, timestamp_ms)

    def flush(self) -> None:
        for _, key_bytes in self._index.pop_before(self._oldest_ms() + 1):
            self._trim(key_bytes)
        self._lists.flush()
        self._latest.flush()
        self._tally.flush()

    def _set(self, key_bytes: bytes, data: bytes | None, timestamp_ms: int) -> int:
        if timestamp_ms < self._oldest_ms():
            return NOT_PUT
        self._latest.observe(timestamp_ms)
        versions = self._lists.get(key_bytes)
        before = len(versions)
        versions[:] = sorted(
            [*(each for each in versions if each[0] != timestamp_ms), (timestamp_ms, 0, data)], key=_time
        )
        self._tally.add(len(versions) - before)
        self._lists.changed(key_bytes)
        at = next(index for index, each in enumerate(versions) if each[0] == timestamp_ms)
        if at > 0:
            self._index.add(timestamp_ms, key_bytes)
        if at + 1 == len(versions):
            if data is None:
                # Nothing may follow a deletion; then it leaves like a version that was followed.
                self._index.add(timestamp_ms, key_bytes)
            return UNDEFINED
        self._index.add(versions[at + 1][0], key_bytes)
        return versions[at + 1][0]

    def _trim(self, key_bytes: bytes) -> None:
        """Let go of versions that were followed before the history begins."""
        versions, oldest_ms = self._lists.get(key_bytes), self._oldest_ms()
        if not versions:
            # The index names a key once per time; an earlier time has emptied it.
            return
        kept = [
            version
            for version, following in zip(versions, [*versions[1:], None], strict=True)
            if following is None or following[0] > oldest_ms
        ]
        while kept and kept[0][2] is None and kept[0][0] <= oldest_ms:
            # Before it there is nothing, which is what it says.
            kept.pop(0)
        self._tally.add(len(kept) - len(versions))
        versions[:] = kept
        self._lists.changed(key_bytes)

    def _oldest_ms(self) -> int:
        return self._latest.minus(self._history_ms)

    def _shown(self, version: Entry) -> ValueAndTimestamp | None:
        time_ms, _, data = version
        return None if data is None else ValueAndTimestamp(self._value.deserialize(data), time_ms)


def _time(version: Entry) -> int:
    return version[0]
