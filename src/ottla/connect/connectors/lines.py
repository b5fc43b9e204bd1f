"""Bytes of a text file as a column of its lines, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from ottla.records.arrow_arrays import as_text, binaries, binaries_of

_LF, _CR = 0x0A, 0x0D


class Lines(NamedTuple):
    texts: Any
    """A pa.StringArray of the whole lines, without their ends; what is no UTF-8 in them is replaced."""
    ends: npt.NDArray[np.int64]
    """Behind each of them."""
    rest: bytes
    """What stands behind the last."""


def lines_of(data: bytes) -> Lines:
    """A line ends with \\n, \\r\\n or \\r; behind a \\r that is the last byte a \\n may be yet to come."""
    seen = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(seen == _LF)
    stops = ends
    if b"\r" in data:
        is_end = (seen == _LF) | (seen == _CR)
        is_end[:-1] &= ~((seen[:-1] == _CR) & (seen[1:] == _LF))
        is_end[-1] &= seen[-1] == _LF
        ends = np.flatnonzero(is_end)
        # Of \r\n the text ends before both.
        stops = ends - ((seen[ends] == _LF) & (ends > 0) & (seen[ends - 1] == _CR))
    if not len(ends):
        return Lines(None, ends, data)
    ends = ends + 1
    whole, rest = data[: ends[-1]], data[ends[-1] :]
    starts = np.concatenate(([0], ends[:-1]))
    if not whole.isascii():
        try:
            whole.decode()
        except UnicodeDecodeError:
            pairs = zip(starts.tolist(), stops.tolist(), strict=True)
            made = [data[start:stop].decode(errors="replace").encode() for start, stop in pairs]
            return Lines(as_text(binaries_of(made)), ends, rest)
    return Lines(as_text(binaries(whole.translate(None, b"\r\n"), stops - starts)), ends, rest)


def as_lines(texts: Any) -> memoryview:
    """Each of a pa.StringArray with a line feed behind it; null is the word null."""
    feed, null = (as_text(binaries_of([word]))[0] for word in (b"\n", b"null"))
    nothing = as_text(binaries_of([b""]))[0]
    filled = pc.fill_null(texts, null) if texts.null_count else texts
    return memoryview(pc.binary_join_element_wise(filled, feed, nothing).buffers()[2])
