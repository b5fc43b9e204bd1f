"""Names of metrics in protocol buffers that clients wrote, whatever else is in them."""

from __future__ import annotations

import contextlib

import pytest

from ottla.telemetry import otlp
from ottla.telemetry.otlp import MalformedMetrics, metric_names


def field(number: int, content: bytes) -> bytes:
    length = len(content)
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes((number << 3 | 2,)) + encoded + content


def metric(name: str) -> bytes:
    others = field(3, b"ms") + b"\x08\x96\x01" + b"\x39" + bytes(8) + b"\x45" + bytes(4)
    return field(2, others.replace(b"\x08", b"\x20") + field(1, name.encode()) + field(7, b"\x0a\x01x"))


def push(*names: str) -> bytes:
    scope = field(1, b"\x0a\x05scope") + b"".join(map(metric, names))
    return field(1, field(1, b"\x0a\x02ab") + field(2, scope))


def test_names_are_found_between_everything_else() -> None:
    long_name = "org.apache.kafka." + "x" * 300
    assert metric_names(push("a", long_name) + push("b")) == ["a", long_name, "b"]
    assert metric_names(b"") == []


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\xff" * 11, b"\x0b", b"\x0a\x02\x12\x7f", b"\x80"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        metric_names(data)


def test_every_cut_off_push_is_refused_or_short() -> None:
    whole = push("first", "second")
    for length in range(len(whole)):
        with contextlib.suppress(MalformedMetrics):
            assert metric_names(whole[:length]) == []


def test_a_push_of_nothing_but_fields_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIELDS_MAX", 12)
    assert metric_names(b"\x08\x01" * 9 + push("late")) == []
    assert metric_names(b"\x08\x01" * 2 + push("early")) == ["early"]
