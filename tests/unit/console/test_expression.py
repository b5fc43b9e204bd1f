"""Expressions over a record: what they mean, and what is no expression."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.problems import Refused
from ottla.console.records.expression import DEPTH_MAX, LENGTH_MAX, Seen, expression
from ottla.console.records.shown import NOTHING, Shown, show

VALUE = {
    "total": 250,
    "paid": True,
    "note": None,
    "n": "17",
    "items": [{"sku": "a"}, {"sku": "b c"}],
    "x-y": 1,
}
RECORD = Seen(
    show(b'{"id": 7}'),
    show(json.dumps(VALUE).encode()),
    [("source", show(b"shop")), ("trace.id", show(b"42")), ("none", NOTHING)],
    3,
    1000,
    1_767_225_600_000,  # 2026-01-01T00:00:00Z
    9,
    120,
)


@pytest.mark.parametrize(
    "text",
    [
        "$.total > 100",
        "$.total>=250 and $.total<=250",
        "value.total = 250",
        "not $.total < 100",
        "$.total < 100 or $.paid = true",
        "$.total < 100 or $.total > 1000 or not ($.paid = false)",
        "$.paid",
        "not $.note",
        "$.note = null",
        "not $.missing",
        "not $.missing = 1",
        "$.items[*].sku = 'b c'",
        '$.items[0].sku != "b c"',
        "$.items[-1]['sku'] ~ 'c'",
        "$.x-y = 1",
        "$.n = 17 and $.n > 16.5",
        "$.n = '17'",
        "not $.n > 'text'",
        "key.id = 7",
        "key ~ 'id' and key =~ '^.\"id\\\": [0-9]+.$'",
        "headers.source = 'shop'",
        "headers['trace.id'] = 42 and headers.trace.id = 42",
        "headers.source =~ 'sh?op'",
        "not headers.none and not headers.other",
        "partition = 3 and offset >= 1000 and offset < 1001",
        "timestamp >= '2026-01-01T00:00:00' and timestamp < '2026-01-01T00:00:01'",
        "timestamp = 1767225600000",
        "keyBytes = 9 and valueBytes > 100",
        "  ( ( partition=3 ) )  ",
        # and before or
        "partition = 3 or partition = 4 and partition = 5",
        "not partition = 4 and partition = 3",
        "not $.paid = 1",
        "not $.total = true",
        "$.paid != 1",
    ],
)
def test_what_holds(text: str) -> None:
    assert expression(text)(RECORD)
    assert not expression(f"not ({text})")(RECORD)


def test_what_is_not_there_is_equal_to_nothing() -> None:
    bare = RECORD._replace(key=NOTHING, value=NOTHING, headers=[])
    for text in ("key", "value", "$.a", "key = 'x'", "value ~ 'x'", "value =~ '.*'", "$.a != 1", "key > 3"):
        assert not expression(text)(bare), text
    assert expression("key = null and not value")(bare)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("and", "is missing"),
        ("$.a >", "is missing"),
        ("$.a > and", "is missing"),
        ("($.a", "closing parenthesis"),
        ("$.a)", "the end is missing"),
        ("$.a $.b", "the end is missing"),
        ("1 = $.a", "is missing at"),
        ("colour = 1", "there is no colour"),
        ("headers", "there is no headers"),
        ("keys", "there is no keys"),
        ("$.a[", "cannot be read"),
        ("$..a = 1", "not a path"),
        ("$.a = 'open", "cannot be read"),
        ("key =~ '('", "not a regular expression"),
        ("key =~ 5", "a text in quotes"),
        ("timestamp > 'yesterday'", "yesterday"),
        ("; drop", "cannot be read"),
        ("$" + "[0]" * 1000, "steps"),
        ("not " * (DEPTH_MAX + 1) + "key", "nested"),
        ("(" * 1000 + "key", "nested"),
        ("key" + " " * LENGTH_MAX, "characters"),
    ],
)
def test_what_is_no_expression_is_explained(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        expression(text)


WORDS = (
    "$.a",
    "key",
    "value.b[0]",
    "headers.c",
    "offset",
    "(",
    ")",
    "and",
    "or",
    "not",
    "=",
    "~",
    "=~",
    "<",
    "1",
    "'x'",
)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30))
def test_whatever_is_typed_is_an_expression_or_refused(text: str) -> None:
    try:
        test = expression(text)
    except Refused:
        return
    assert test(RECORD) in (True, False)
    assert test(RECORD._replace(value=Shown("string", "no JSON"), key=NOTHING)) in (True, False)


def test_numbers_may_begin_with_a_zero() -> None:
    assert expression("$.total = 0250 and offset = 01000 and not $.total = -0.5e1")(RECORD)
    with pytest.raises(Refused, match="cannot be read"):
        expression("$.total = \u0663")


@pytest.mark.parametrize("text", ["$.a =~ 'b$'", "not $.a =~ 'c'", "$.a ~ 'b'", "not $.a[*] ~ 'c'"])
def test_half_of_a_pair_of_surrogates_is_a_character_like_others(text: str) -> None:
    assert expression(text)(RECORD._replace(value=show(rb'{"a": "\ud800b"}')))


def test_what_is_nested_as_deep_as_can_be_read_can_be_looked_at() -> None:
    """It is written from further down the stack than it was read."""
    tests = [expression("not " * (DEPTH_MAX - 2) + "$.a ~ 'x'"), expression("$.a =~ 'x'")]
    for depth in range(900, 1000):
        value = show(b'{"a":' + b"[" * depth + b"]" * depth + b"}")
        assert not any(test(RECORD._replace(value=value)) for test in tests)
