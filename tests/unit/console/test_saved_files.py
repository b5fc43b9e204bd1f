"""Records saved as files."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.console.records.files import writer_of


def record(value: str) -> dict[str, Any]:
    return {
        "partition": 0,
        "offset": 1,
        "timestamp": 2,
        "key": {"text": value},
        "value": {"text": value},
        "headers": [{"name": value, "text": value}],
    }


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "\u00a0=", "＝", "＋", "－", "＠"]
)
def test_no_cell_of_a_table_is_a_formula(start: str) -> None:
    _, line = writer_of("csv").rows([record(f"{start}cmd|' /C calc'!A0")]).decode().split("\r\n", 1)
    assert line.startswith(f"0,1,2,'{start}") or line.startswith(f"0,1,2,\"'{start}")
    assert line.count(f"'{start}cmd") == 2


def test_texts_that_are_none_stay_as_they_are() -> None:
    _, line = writer_of("csv").rows([record("a, b = c")]).decode().split("\r\n", 1)
    assert line.startswith('0,1,2,"a, b = c","a, b = c",')
