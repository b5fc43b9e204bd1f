"""Partitions go round Spark's tasks in turn."""

from __future__ import annotations

import pytest

from ottla.streams.on_spark.slots import partition_of, slot_of, spark_hash


@pytest.mark.parametrize(("number", "expected"), [(0, -1670924195), (1, -1712319331), (-1, -939490007)])
def test_the_hash_is_spark_s(number: int, expected: int) -> None:
    assert spark_hash(number) == expected


@pytest.mark.parametrize("tasks", range(1, 9))
def test_partitions_are_dealt_evenly_to_any_usual_number_of_tasks(tasks: int) -> None:
    assert [spark_hash(slot_of(partition)) % tasks for partition in range(24)] == [
        partition % tasks for partition in range(24)
    ]


def test_a_slot_tells_its_partition_and_stays_where_state_was_left() -> None:
    assert [partition_of(slot_of(partition)) for partition in range(24)] == list(range(24))
    assert [slot_of(partition) for partition in (0, 1, 2, 3)] == [480, 1049106, 2098110, 3146422]
