"""The segments of a log in the order of their base offsets; never without a last one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from ottla.config import LogConfig
from ottla.log.segment import Segment
from ottla.log.types import TopicPartition
from ottla.runtime import Runtime


class Segments:
    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]
        """The one written to."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def all(self) -> Sequence[Segment]:
        return self._segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: int) -> int:
        """Index of the segment that would hold an offset: the last that does not begin after it; the first if
        all do."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> Sequence[Segment]:
        """The segments with records at or after an offset."""
        return self._segments[self.floor(offset) :]

    def end_of(self, index: int, log_end_offset: int) -> int:
        """The offset after the last of a segment's."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def base_after(self, segment: Segment) -> int | None:
        """Where the next segment begins, if there is one."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self._bases[slot] if slot < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def take_first(self, count: int) -> Sequence[Segment]:
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return taken

    def take_after(self, index: int) -> Sequence[Segment]:
        """Whatever comes after a segment, which becomes the one written to."""
        taken = self._segments[index + 1 :]
        del self._segments[index + 1 :], self._bases[index + 1 :]
        self.active = self._segments[-1]
        return taken

    def holds(self, run: Sequence[Segment]) -> bool:
        """Whether these are still here, one after the other."""
        index = self.floor(run[0].base_offset)
        return self._segments[index : index + len(run)] == list(run)

    def replace(self, run: Sequence[Segment], replacement: Segment) -> None:
        """One for several, none of which is the one written to."""
        index = self.floor(run[0].base_offset)
        self._segments[index : index + len(run)] = [replacement]
        self._bases[index : index + len(run)] = [replacement.base_offset]


def new_segment(
    runtime: Runtime,
    directory: str,
    partition: TopicPartition,
    base_offset: int,
    config: LogConfig,
    suffix: str = "",
) -> Segment:
    """A segment object; its files are made or found by the caller."""
    jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
    return Segment(
        runtime.disk,
        directory,
        partition,
        base_offset,
        config=config,
        created_ms=runtime.clock.now_ms(),
        # Logs that were made together would otherwise all roll together.
        roll_jitter_ms=runtime.random.randrange(jitter_ms) if jitter_ms > 0 else 0,
        suffix=suffix,
    )
