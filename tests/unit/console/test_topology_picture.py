"""A topology as a picture."""

from __future__ import annotations

import re
from typing import Any

from ottla.console.pages.topology import picture


def node(name: str, kind: str, *children: str, topics: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "topics": topics,
        "stores": (),
        "children": children,
        "records": None,
        "dropped": {},
        "failed": {},
    }


def places(drawn: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r'<rect x="(\d+)" y="(\d+)"', drawn)]


def test_records_go_from_left_to_right_also_through_topics() -> None:
    drawn = picture(
        [
            node("in", "source", "map", topics=("orders",)),
            node("map", "processor", "between"),
            node("between", "sink", topics=("repartition",)),
            node("on", "source", "count", topics=("repartition",)),
            node("count", "processor"),
        ],
        lambda topic: f"/{topic}",
    )
    xs = [x for x, _ in places(drawn)]
    assert xs == sorted(set(xs)) and len(xs) == 5
    assert drawn.count('class="edge"') == 3 and drawn.count("through-topic") == 1
    assert '<a href="/orders">' in drawn


def test_no_two_nodes_are_in_one_place_and_circles_end() -> None:
    joined = [node(f"source-{number}", "source", "join") for number in range(5)]
    drawn = picture(
        [*joined, node("join", "processor", "loop"), node("loop", "processor", "join", "nowhere")],
        lambda topic: topic,
    )
    assert len(set(places(drawn))) == len(places(drawn)) == 7


def test_a_tangle_and_a_long_chain_are_drawn_at_once() -> None:
    names = [str(number) for number in range(60)]
    assert picture([node(name, "processor", *names) for name in names], str).count("<rect") == 60
    chain = [node(str(number), "processor", str(number + 1)) for number in range(1500)]
    xs = [x for x, _ in places(picture(chain[::-1], str))]
    assert len(set(xs)) == 1500 and xs[-1] < xs[0]
