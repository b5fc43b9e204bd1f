"""Who reads which partition, as a picture."""

from __future__ import annotations

from html import escape
from typing import Any

from ottla.console.pages.assignment import COLOURS, DRAWN_MEMBERS_MAX, assignment
from ottla.console.pages.cells import DRAWN_PARTITIONS_MAX

EVIL = """"'><script>alert(1)</script>"""


def member(name: str, client: str = "a-client") -> dict[str, Any]:
    return {"id": name, "client": client}


def partition(number: int, *members: str, topic: str = "orders") -> dict[str, Any]:
    return {"topic": topic, "partition": number, "members": list(members)}


def drawn(members: list[dict[str, Any]], partitions: list[dict[str, Any]]) -> str:
    found = assignment(members, partitions)
    assert found is not None
    return found


def rows(picture: str) -> list[str]:
    """Of the body, from the head of each on."""
    return picture.partition("<tbody>")[2].split("<tr>")[1:]


def test_each_member_has_a_row_and_what_nobody_reads_is_in_one_of_its_own() -> None:
    one, two, nobody = rows(
        drawn([member("m1"), member("m2")], [partition(0, "m1"), partition(1, "m2"), partition(2)])
    )
    assert one.count("held colour-0") == 1 and "orders-0: read by a-client" in one
    assert two.count("held colour-1") == 1 and "orders-1: read by a-client" in two
    assert nobody.count("unread") == 1 and "orders-2: read by nobody" in nobody and "Nobody" in nobody


def test_partitions_are_under_their_topic() -> None:
    picture = drawn([member("m")], [partition(0, "m"), partition(1, "m"), partition(0, "m", topic="paid")])
    assert 'colspan="2" title="orders"' in picture and 'colspan="1" title="paid"' in picture
    assert "Nobody" not in picture and "read by nobody" not in picture


def test_a_partition_of_a_share_group_is_in_the_rows_of_all_who_read_it() -> None:
    picture = rows(drawn([member("m1"), member("m2"), member("m3")], [partition(0, "m1", "m2")]))
    assert ["held" in row for row in picture] == [True, True, False]
    assert "orders-0: read by a-client, and by 1 more" in picture[0]


def test_without_members_nobody_reads_anything_and_without_partitions_nothing_is_drawn() -> None:
    (nobody,) = rows(drawn([], [partition(0), partition(1)]))
    assert nobody.count("unread") == 2
    assert assignment([member("m")], []) is None


def test_a_large_group_is_drawn_in_part_and_the_rest_is_told_of() -> None:
    members = [member(f"m{number}") for number in range(DRAWN_MEMBERS_MAX + 1)]
    partitions = [partition(number, f"m{number % 40}") for number in range(1000)]
    picture = drawn(members, partitions)
    assert len(rows(picture)) == DRAWN_MEMBERS_MAX
    assert f"{1000 - DRAWN_PARTITIONS_MAX} more partitions are not drawn." in picture
    assert "1 more member is not drawn." in picture
    assert f"colour-{COLOURS - 1}" in picture and f"colour-{COLOURS}" not in picture
    assert len(picture) < 200_000


def test_names_are_text() -> None:
    picture = drawn([member(EVIL, EVIL)], [partition(0, EVIL, topic=EVIL), partition(1, topic=EVIL)])
    assert "<script" not in picture and escape(EVIL) in picture
    # A member that tells no client is called by its id.
    assert "read by m<" not in drawn([member("m<", "")], [partition(0, "m<")])
