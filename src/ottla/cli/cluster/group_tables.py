"""What tables of groups are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.admin.topics import Partition

MISSING = "-"
_WIDTH_MIN = 15


def places_text(places: Sequence[Partition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for place in sorted(places):
        by_topic.setdefault(place.topic, []).append(str(place.number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or MISSING


def aligned(rows: Sequence[Sequence[Any]]) -> list[str]:
    widths = [max(_WIDTH_MIN, *(len(str(row[at])) for row in rows)) for at in range(len(rows[0]))]
    return [
        " ".join(f"{value!s:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
