"""Draws the tutorial's pictures: `python docs/tutorial/pictures.py` writes them beside itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
CELL, GAP, LINE = 44, 4, 74
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #334 } .small { font-size: 11px; fill: #778 }
  .cell { fill: #eef2ff; stroke: #5b6bb5 } .gone { fill: none; stroke: #bbc; stroke-dasharray: 3 3 }
  .new { fill: #fff4d6; stroke: #b58b1b } .box { fill: #f4f5f8; stroke: #99a }
  path { fill: none; stroke: #667; marker-end: url(#tip) }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" style="fill:#667;stroke:none"/></marker></defs>"""


def picture(width: int, height: int, parts: Iterator[str], title: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, ground, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, words: str, kind: str = "box") -> Iterator[str]:
    yield f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
    yield text(x + width / 2, y + height / 2 + 5, words)


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:g} {y1:g} {x2:g} {y2:g}"/>'


def log(
    x: float, y: float, records: Sequence[str], kinds: Sequence[str] = (), first: int = 0
) -> Iterator[str]:
    """Cells with their offsets below; a kind for each, `cell` where none is given."""
    for number, record in enumerate(records):
        at = x + number * (CELL + GAP)
        kind = kinds[number] if number < len(kinds) else "cell"
        yield from box(at, y, CELL, 32, record if kind != "gone" else "", kind)
        yield text(at + CELL / 2, y + 46, str(number), "small")


def event_log() -> str:
    def parts() -> Iterator[str]:
        yield from log(20, 40, ["a", "b", "c", "d", "e", ""], ["cell"] * 5 + ["gone"])
        yield text(20, 24, "oldest", "small", "start")
        yield text(20 + 5.5 * (CELL + GAP), 24, "the next goes here", "small")
        yield from box(60, 130, 90, 30, "reader")
        yield from box(200, 130, 90, 30, "reader")
        yield arrow(105, 128, 88, 92)
        yield arrow(245, 128, 230, 92)

    return picture(400, 175, parts(), "An event log: records with offsets, readers at places of their own")


def partitions() -> str:
    def parts() -> Iterator[str]:
        yield from box(16, 84, 84, 34, "producer")
        rows = (["ann", "ann"], ["dee", "eli", "dee"], ["bob", "cem", "bob", "cem"])
        for number, records in enumerate(rows):
            y = 16 + number * LINE
            yield text(180, y + 20, f"partition {number}", "small")
            yield from log(226, y, records)
            yield arrow(102, 101, 140, y + 18)

    return picture(440, 240, parts(), "A topic of three partitions: a key always goes to the same one")


def groups() -> str:
    def parts() -> Iterator[str]:
        for number in range(3):
            yield from box(20, 20 + number * 52, 110, 34, f"partition {number}", "cell")
        yield from box(230, 20, 120, 34, "invoices, 1")
        yield from box(230, 98, 120, 34, "invoices, 2")
        yield from box(430, 72, 120, 34, "statistics, 1")
        for number, member in ((0, 37), (1, 37), (2, 115)):
            yield arrow(132, 37 + number * 52, 228, member)
        yield text(290, 165, "a group shares the partitions", "small")
        yield text(490, 165, "another group sees them all", "small")

    return picture(570, 185, parts(), "Each partition is read by one member of a group")


def replication() -> str:
    def parts() -> Iterator[str]:
        for number, (name, role, kind) in enumerate(
            (("broker 1", "follower", "box"), ("broker 2", "leader", "new"), ("broker 3", "follower", "box"))
        ):
            y = 14 + number * LINE
            yield from box(20, y, 100, 40, name, kind)
            yield text(70, y + 54, role, "small")
            yield from log(230, y + 2, ["a", "b", "c"] if number != 2 else ["a", "b"])
        yield arrow(390, 98, 390, 40)
        yield arrow(390, 112, 334, 176)
        yield text(402, 110, "followers fetch what they lack", "small", "start")

    return picture(580, 240, parts(), "Three replicas of a partition: one leads, the others follow")


def compaction() -> str:
    def parts() -> Iterator[str]:
        yield text(20, 22, "before", "small", "start")
        yield from log(20, 32, ["ann 1", "bob 1", "ann 2", "cem 1", "bob –", "ann 3"])
        yield text(20, 112, "after", "small", "start")
        kinds = ["gone", "gone", "gone", "cell", "cell", "cell"]
        yield from log(20, 122, ["", "", "", "cem 1", "bob –", "ann 3"], kinds)

    return picture(330, 185, parts(), "Compaction keeps the last record of each key, at its offset")


PICTURES = {
    "event-log.svg": event_log,
    "partitions.svg": partitions,
    "groups.svg": groups,
    "replication.svg": replication,
    "compaction.svg": compaction,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw())
