"""A topology as a picture: nodes in columns by how far they are from their sources, lines to the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.console.html import Child, Html, a, element
from ottla.console.pages.parts import number

WIDTH, HEIGHT = 244, 58
_ACROSS, _DOWN = WIDTH + 44, HEIGHT + 18
_MARGIN = 8
_TEXT_MAX = 28
_svg, _g, _rect, _path, _text, _title = (
    element(tag) for tag in ("svg", "g", "rect", "path", "text", "title")
)


class Place(NamedTuple):
    x: int
    y: int


def picture(nodes: Sequence[Mapping[str, Any]], topic_link: Any) -> Html:
    """`topic_link` gives the address of a topic's page."""
    # What several queries begin with is one thing in the picture.
    nodes = list({node["name"]: node for node in nodes}.values())
    known = {node["name"] for node in nodes}
    edges = [(node["name"], child, "edge") for node in nodes for child in node["children"] if child in known]
    # One sub-topology writes what another reads: a line of another kind, through the topic.
    readers = {topic: node["name"] for node in nodes if node["type"] == "source" for topic in node["topics"]}
    edges += [
        (node["name"], readers[topic], "edge through-topic")
        for node in nodes
        if node["type"] == "sink"
        for topic in node["topics"]
        if topic in readers
    ]
    places = _places([node["name"] for node in nodes], [(start, end) for start, end, _ in edges])
    lines = [_line(places[start], places[end], kind) for start, end, kind in edges]
    width = max((place.x for place in places.values()), default=0) + WIDTH + _MARGIN
    height = max((place.y for place in places.values()), default=0) + HEIGHT + _MARGIN
    boxes = [_box(node, places[node["name"]], topic_link) for node in nodes]
    return _svg(
        lines,
        boxes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="topology",
        role="group",
        aria_label=f"Topology of {len(nodes)} nodes",
    )


def _places(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, Place]:
    parents: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        parents[end].append(start)
    ranks = _ranks(names, parents)
    columns: dict[int, list[str]] = defaultdict(list)
    for name in names:
        columns[ranks[name]].append(name)
    rows: dict[str, float] = {}
    for column in sorted(columns):
        # Beside whom they come from, and then as close together as they can be.
        inside = columns[column]
        wanted = {
            name: sum(rows[parent] for parent in over) / len(over)
            if (over := [parent for parent in parents[name] if parent in rows])
            else float(place)
            for place, name in enumerate(inside)
        }
        last = -1.0
        for name in sorted(inside, key=lambda name: wanted[name]):
            rows[name] = last = max(wanted[name], last + 1)
    return {name: Place(_MARGIN + ranks[name] * _ACROSS, _MARGIN + int(rows[name] * _DOWN)) for name in names}


def _ranks(names: Sequence[str], parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many nodes lie before each, at most, without what leads back. Each is looked at once: no answer of
    an application takes long, however tangled it is."""
    ranks: dict[str, int] = {}
    for first in names:
        begun, path = {first}, [(first, iter(parents.get(first, ())))]
        while path and first not in ranks:
            name, rest = path[-1]
            parent = next((each for each in rest if each not in ranks and each not in begun), None)
            if parent is not None:
                begun.add(parent)
                path.append((parent, iter(parents.get(parent, ()))))
            else:
                path.pop()
                over = [ranks[each] for each in parents.get(name, ()) if each in ranks]
                ranks[name] = max(over, default=-1) + 1
    return ranks


def _line(start: Place, end: Place, kind: str) -> Html:
    x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2
    x2, y2 = end.x, end.y + HEIGHT // 2
    bend = max(abs(x2 - x1) // 2, 28)
    return _path(d=f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}", class_=kind)


def _box(node: Mapping[str, Any], place: Place, topic_link: Any) -> Html:
    about = ", ".join(node["topics"] or node["stores"])
    second: Child = _text(_cut(about), x=place.x + 12, y=place.y + 36, class_="about")
    if node["topics"]:
        second = a(second, href=topic_link(node["topics"][0]))
    dropped = sum((node.get("dropped") or {}).values()) + sum((node.get("failed") or {}).values())
    counted = "" if node.get("records") is None else f"{number(node['records'])} records"
    if dropped:
        counted += f", {number(dropped)} dropped or failed"
    return _g(
        _title(f"{node['type']} {node['name']}: {about} {counted}".strip()),
        _rect(x=place.x, y=place.y, width=WIDTH, height=HEIGHT, rx=8, class_="box"),
        _text(_cut(node["name"]), x=place.x + 12, y=place.y + 20, class_="name"),
        second,
        _text(counted, x=place.x + 12, y=place.y + 50, class_="count bad-text" if dropped else "count"),
        class_=f"node node-{node['type'] if node['type'] in {'source', 'sink', 'processor'} else 'other'}",
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
