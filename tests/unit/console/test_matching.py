"""Filters of records, each by itself."""

from __future__ import annotations

import time

import pytest

from ottla.console.problems import Refused
from ottla.console.records.expression import Seen
from ottla.console.records.matching import matcher
from ottla.console.records.shown import show

RECORD = Seen(show(b"key"), show(b'{"n": 17, "text": "17", "ok": true, "state": "paid"}'), [], 0, 0, 0, 3, 50)


@pytest.mark.parametrize(
    "path",
    [
        "$.n > 16",
        " $.n=17 ",
        "$['n'] != 16",
        "$.text = 17",
        "$.ok = true",
        "$.ok ~ tru",
        "$.state = paid",
        "$.state = 'paid'",
        '$.state = "paid"',
        "$.state ~ ai",
        "$.n",
    ],
)
def test_a_path_that_leads_to_it(path: str) -> None:
    test = matcher(path=path)
    assert test is not None and test(RECORD)


@pytest.mark.parametrize("path", ["$.n > 17", "$.ok = 1", "$.ok != true", "$.none", "$.none != 1", "$.n ~ x"])
def test_a_path_that_does_not(path: str) -> None:
    test = matcher(path=path)
    assert test is not None and not test(RECORD)


@pytest.mark.parametrize(
    "path", ["n = 1", "$..n", "$.n[", "$ n" + " " * 60_000 + "x", "$" + " " * 60_000 + "[=1"]
)
def test_what_is_no_path_is_said_at_once(path: str) -> None:
    began = time.process_time()
    with pytest.raises(Refused, match="path"):
        matcher(path=path)
    assert time.process_time() - began < 1


def test_a_wrong_regular_expression_is_told_to_whoever_asks_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refused, match=r"^value: \( is not a regular expression: missing \)"):
        matcher(value="/(/")
    assert capfd.readouterr().err == ""
