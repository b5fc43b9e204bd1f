"""Draws a topology as SVG: sub-topologies side by side in frames, topics between them, records flowing
down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode, subtopologies

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 270, 44, 24, 34, 30
_STYLE = """
  text { font: 12px sans-serif; fill: #222; }
  .note { font-size: 10px; fill: #666; }
  .source { fill: #dff0d8; stroke: #5a9a4a; }
  .processor { fill: #eef3fb; stroke: #5b7fb5; }
  .stateful { fill: #fbeccb; stroke: #c08a1e; }
  .sink { fill: #f6dede; stroke: #b35b5b; }
  .frame { fill: none; stroke: #bbb; stroke-dasharray: 5 4; }
  .flow { fill: none; stroke: #555; marker-end: url(#arrow); }
  .topic { fill: none; stroke: #999; stroke-dasharray: 3 3; marker-end: url(#arrow); }
"""


@dataclass(frozen=True, slots=True)
class _Box:
    x: int
    y: int


def draw(plan: Plan) -> str:
    parts: list[str] = []
    boxes: dict[str, _Box] = {}
    left, bottom = _MARGIN, 0
    for number, names in enumerate(subtopologies(plan)):
        ranks = _ranks(plan, names)
        columns = max(len(rank) for rank in ranks)
        width = columns * (_WIDTH + _GAP_X) - _GAP_X
        height = len(ranks) * (_HEIGHT + _GAP_Y) - _GAP_Y
        parts.append(
            f'<rect class="frame" x="{left - 14}" y="{_MARGIN}" width="{width + 28}" '
            f'height="{height + 48}" rx="8"/>'
        )
        parts.append(f'<text class="note" x="{left}" y="{_MARGIN + 16}">Sub-topology {number}</text>')
        for depth, rank in enumerate(ranks):
            for index, name in enumerate(rank):
                boxes[name] = _Box(
                    left + index * (_WIDTH + _GAP_X), _MARGIN + 30 + depth * (_HEIGHT + _GAP_Y)
                )
        left += width + 28 + _GAP_X
        bottom = max(bottom, _MARGIN + height + 48)
    parts.extend(_flow(boxes[parent], boxes[child], "flow") for parent, child in _edges(plan))
    parts.extend(_flow(boxes[sink], boxes[source], "topic") for sink, source in _topic_edges(plan))
    parts.extend(_node(plan, name, box) for name, box in boxes.items())
    width, height = left + _MARGIN, bottom + _MARGIN
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
        f"<style>{_STYLE}</style>{arrow}{''.join(parts)}</svg>"
    )


def _ranks(plan: Plan, names: frozenset[str]) -> list[list[str]]:
    """Nodes by their longest way from a source, in the order of the program."""
    depth: dict[str, int] = {}
    # Parents come before their children in the plan.
    for name in plan.nodes:
        if name in names:
            depth[name] = max(
                (depth[parent] + 1 for parent in plan.parents(name) if parent in depth), default=0
            )
    ranks: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, rank in depth.items():
        ranks[rank].append(name)
    return ranks


def _edges(plan: Plan) -> Iterable[tuple[str, str]]:
    return ((parent, child) for parent, children in plan.children.items() for child in children)


def _topic_edges(plan: Plan) -> Iterable[tuple[str, str]]:
    return (
        (sink.name, source.name)
        for sink in plan.sinks()
        for source in plan.sources()
        if isinstance(sink.topic, str) and source.reads(sink.topic)
    )


def _flow(start: _Box, end: _Box, kind: str) -> str:
    x1, y1 = start.x + _WIDTH // 2, start.y + _HEIGHT
    x2, y2 = end.x + _WIDTH // 2, end.y
    bend = max(20, abs(y2 - y1) // 2)
    return f'<path class="{kind}" d="M{x1} {y1} C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"/>'


def _node(plan: Plan, name: str, box: _Box) -> str:
    match plan.nodes[name]:
        case SourceNode() as source:
            kind, note = "source", f"from {source.pattern or ', '.join(source.topics)}"
        case SinkNode(topic=str(topic)):
            kind, note = "sink", f"to {topic}"
        case SinkNode():
            kind, note = "sink", "to the topic each record names"
        case ProcessorNode(stores=stores):
            kind, note = ("stateful", ", ".join(stores)) if stores else ("processor", "")
    rounding = 4 if kind in {"processor", "stateful"} else 20
    texts = f'<text x="{box.x + 10}" y="{box.y + 18}">{escape(_short(name))}</text>'
    if note:
        texts += f'<text class="note" x="{box.x + 10}" y="{box.y + 34}">{escape(_short(note))}</text>'
    return (
        f'<g><title>{escape(name)}</title><rect class="{kind}" x="{box.x}" y="{box.y}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" rx="{rounding}"/>{texts}</g>'
    )


def _short(text: str) -> str:
    return text if len(text) <= 42 else text[:20] + "…" + text[-21:]
