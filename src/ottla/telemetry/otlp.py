"""Names of the metrics in a push, which is OpenTelemetry's MetricsData in protocol buffers.

Names are all that is read: each is found by going down four messages, which takes no library.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.varints import read_uvarlong

FIELDS_MAX = 100_000
"""Looked at in one push, which takes a tenth of a second. Of what comes after, nothing is told."""

# MetricsData.resource_metrics, ResourceMetrics.scope_metrics, ScopeMetrics.metrics, Metric.name
_PATH = (1, 2, 2, 1)

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


class MalformedMetrics(ValueError):
    """Not protocol buffers."""


def metric_names(data: bytes) -> list[str]:
    """In the order of the push, each as often as it is there. Raises MalformedMetrics."""
    try:
        return [bytes(name).decode("utf-8", "replace") for name in _Walk().down(memoryview(data), _PATH)]
    except IndexError:
        raise MalformedMetrics("a number that does not end") from None


class _Walk:
    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX

    def down(self, message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
        number, *rest = path
        for field in self._fields(message, number):
            if rest:
                yield from self.down(field, tuple(rest))
            else:
                yield field

    def _fields(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        """Those with the number `wanted` that have a length."""
        at, end = 0, len(message)
        while at < end and self._fields_left:
            self._fields_left -= 1
            tag, at = read_uvarlong(message, at)
            number, kind = tag >> 3, tag & 7
            length = 0
            if kind == _VARINT:
                _, at = read_uvarlong(message, at)
            elif kind == _FIXED64:
                length = 8
            elif kind == _FIXED32:
                length = 4
            elif kind == _DELIMITED:
                length, at = read_uvarlong(message, at)
            else:
                raise MalformedMetrics(f"a field of the unknown kind {kind}")
            if length > end - at:
                raise MalformedMetrics(f"a field of {length} bytes where {end - at} are left")
            if number == wanted and kind == _DELIMITED:
                yield message[at : at + length]
            at += length
