"""Bytes as a person reads them: whatever they are, there is a text that can be sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console import rest
from ottla.console.records.shown import show, show_name
from ottla.console.schemas import Decoded, Schemas


class Told(Schemas):
    def __init__(self, data: Any) -> None:
        super().__init__("http://localhost:1")
        self._data = data

    def decode(self, data: bytes) -> Decoded:
        return Decoded("json", self._data)


@pytest.mark.parametrize("data", ["\ud800", {"\udfff": ["\ud800x"]}, {"é": "\udc00"}])
def test_half_of_a_pair_of_surrogates_is_written_as_an_escape(data: Any) -> None:
    text = show(b"", schemas=Told(data)).text
    assert text is not None and "\\ud" in text
    assert text.encode()


def test_what_is_nested_too_deep_is_shown_as_it_came() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert show(b"[[]]", schemas=Told(deep)).text == "[[]]"


@given(st.binary())
def test_every_name_of_a_header_can_be_sent(data: bytes) -> None:
    assert show_name(data.decode("utf-8", "surrogateescape")).encode().decode() == data.decode(
        errors="replace"
    )


@pytest.mark.parametrize(
    "answered", [rb'{"name": "\ud800x"}', rb'["\uDFFF"]', b'["\xed\xa0\x80"]', b'["\xff"]']
)
def test_what_other_servers_answer_is_text(answered: bytes) -> None:
    assert str(rest._data(answered)).encode()


def test_a_pair_of_surrogates_stays_what_it_is() -> None:
    assert rest._data(rb'"\ud83d\ude00 \ud83d"') == "\U0001f600 ?"
