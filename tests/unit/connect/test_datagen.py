"""Rows that are made up: the same for the same seed, and of the kinds that their fields name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.connect.connectors.datagen import Datagen, Rows
from ottla.connect.data import Kind

ALL = (
    "id=sequence(100),n=int(1..3),share=double(2..3),yes=boolean,word=word,text=string(5),state=choice(a|b)",
    "who=name,mail=email,city=city,country=country,ip=ip,id2=uuid,told=sentence,fixed=constant(x y)",
    "at=timestamp(2024-01-01..2024-12-31)",
)
FIELDS = ",".join(ALL).split(",")


def test_rows_depend_on_the_seed_and_their_number_alone() -> None:
    rows, others = Rows(FIELDS, 7), Rows(FIELDS, 8)
    first = [rows.row(number).as_dict() for number in range(50)]
    assert [Rows(FIELDS, 7).row(number).as_dict() for number in reversed(range(50))] == first[::-1]
    assert [others.row(number).as_dict() for number in range(50)] != first
    assert [row["id"] for row in first] == list(range(100, 150))
    assert {row["n"] for row in first} == {1, 2, 3}
    assert all(2 <= row["share"] <= 3 and len(row["text"]) == 5 and row["fixed"] == "x y" for row in first)
    assert {row["state"] for row in first} == {"a", "b"}
    assert all(row["mail"].endswith("@example.com") and row["at"].year == 2024 for row in first)
    assert rows.schema.field("id").schema.kind is Kind.INT64  # type: ignore[union-attr]


def test_a_timestamp_without_a_range_is_now() -> None:
    made = Rows(["at=timestamp"], 0).row(0)["at"]
    assert abs((datetime.now(UTC) - made).total_seconds()) < 10


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"fields": "id"}, "a field is name=kind"),
        ({"fields": "id=nosuch"}, "kinds are boolean, choice"),
        ({"fields": "n=int(9..1)"}, "the lower first"),
        ({"fields": "c=city(1)"}, "nothing in parentheses"),
        ({"fields": "a=word,a=word"}, "a is there twice"),
        ({"fields": "a=word", "key.field": "b"}, "none of the fields"),
    ],
)
def test_fields_that_say_nothing_are_refused_by_name(settings: dict[str, str], told: str) -> None:
    found = Datagen().validate({"topic": "t", **settings})
    (errors,) = found.values()
    assert told in errors[0]
    assert not Datagen().validate({"topic": "t", "quickstart": "orders", "key.field": "id"})
