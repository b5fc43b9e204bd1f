"""Subscribed expressions: RE2 syntax, whole names, linear time."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.regex import RegexError, compile_regex


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("^orders-(eu|us)$", "orders-us", True),
        ("[a-c]{2,3}", "abc", True),
        ("[a-c]{2,3}", "abca", False),
        ("[^._]+", "plain", True),
        ("[^._]+", "not.plain", False),
        ("(?i)ORDERS", "orders", True),
        ("(?i:ORD)ers", "ordERS", False),
        ("\\w+\\.\\d+", "log_1.42", True),
        ("[[:alpha:]]+[[:digit:]]", "topic1", True),
        ("\\Qa.b\\E.*", "a.bc", True),
        ("\\Qa.b\\E", "axb", False),
        ("(?P<name>x)y?", "x", True),
        ("\\p{Lu}\\p{Ll}+", "Topic", True),
        ("a\\b-b", "a-b", True),
        ("a\\Bb", "ab", True),
        ("a|", "", True),
        ("\\x61\\x{62}", "ab", True),
        ("[\\d-]+", "1-2", True),
        ("a{,2}", "a", False),
    ],
)
def test_matching(pattern: str, name: str, expected: bool) -> None:
    assert compile_regex(pattern).matches(name) is expected


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(", "missing )"),
        (")", "unexpected )"),
        ("[a", "missing ]"),
        ("*a", "no argument for repetition operator"),
        ("a**", "bad repetition operator"),
        ("a{2}{3}", "bad repetition operator"),
        ("a{1001}", "invalid repetition size"),
        ("a{3,2}", "invalid repetition size"),
        ("(?=a)", "invalid perl operator"),
        ("(?<!a)b", "invalid perl operator"),
        ("(a)\\1", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("[[:nope:]]", "invalid character class range"),
        ("\\p{Nope}", "invalid character class range"),
        ("(?P<>a)", "invalid named capture"),
        ("((a{900}){900})", "invalid repetition size"),
        ("|".join(f"[ab]{{{n}}}c?" for n in range(1, 249)) + "z", "pattern too large"),
    ],
)
def test_what_re2_refuses_is_refused_with_the_reason(pattern: str, complaint: str) -> None:
    with pytest.raises(RegexError, match=re.escape(complaint)):
        compile_regex(pattern)


def test_an_expression_that_would_make_python_backtrack_for_years_is_quick() -> None:
    matcher = compile_regex("(a|a)*(a+)+(a*)*b")
    started = time.process_time()
    assert not matcher.matches("a" * 249)
    assert matcher.matches("a" * 248 + "b")
    assert time.process_time() - started < 1


def test_the_worst_expressions_that_are_taken_are_not_slow_either() -> None:
    """Every byte of a name keeps every state of these busy."""
    rng = random.Random(1)
    names = ["".join(rng.choice("ab") for _ in range(249)) for _ in range(20)]
    for pattern in (f"({'|'.join(f'[ab]{{{n}}}c?' for n in range(1, 80))})*z", "(a?|b?)" * 1000):
        started = time.process_time()
        try:
            matcher = compile_regex(pattern)
        except RegexError as error:
            assert "too large" in str(error)
        else:
            for name in names:
                matcher.matches(name)
        assert time.process_time() - started < 1


def test_names_that_are_not_ascii() -> None:
    """Transactional ids may be anything."""
    assert compile_regex("caf.").matches("caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert compile_regex("caf\N{LATIN SMALL LETTER E WITH ACUTE}+").matches(
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    )
    assert not compile_regex("[a-z]+").matches("caf\N{LATIN SMALL LETTER E WITH ACUTE}")


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "-", "1"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, name=st.text(alphabet="ab1-", max_size=8))
def test_it_agrees_with_python_where_both_understand(pattern: str, name: str) -> None:
    assert compile_regex(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)
