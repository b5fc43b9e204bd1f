"""Columns and the records they stand for: the same bytes either way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.lines import lines_of

PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"\xc3", b"\xa9", "é€".encode(), b"\xff", b""])


def by_hand(data: bytes) -> tuple[list[str], list[int], bytes]:
    texts, ends, begin, at = [], [], 0, 0
    while at < len(data):
        if data[at : at + 2] == b"\r\n":
            width = 2
        elif data[at : at + 1] == b"\n" or (data[at : at + 1] == b"\r" and at + 1 < len(data)):
            width = 1
        else:
            at += 1
            continue
        texts.append(data[begin:at].decode(errors="replace"))
        at += width
        ends.append(at)
        begin = at
    return texts, ends, data[begin:]


@given(st.lists(PIECES, min_size=1, max_size=30).map(b"".join))
def test_lines_as_a_column_are_those_that_one_finds_by_hand(data: bytes) -> None:
    if data:
        found = lines_of(data)
        texts = [] if found.texts is None else found.texts.to_pylist()
        assert (texts, found.ends.tolist(), found.rest) == by_hand(data)
