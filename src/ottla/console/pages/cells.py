"""Pictures made of cells: who has which partition, a row each, a column for each partition."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.console.html import Child, Html, div, p, span, table, tbody, td, th, thead, together, tr
from ottla.console.pages.parts import number

DRAWN_PARTITIONS_MAX = 64


def cell(kind: str = "", text: Child = None, title: str | None = None) -> Html:
    """Empty without a kind."""
    return td(text, class_=f"replica {kind}".strip(), title=title)


def cells_row(head: Child, cells: Iterable[Html], title: str | None = None) -> Html:
    return tr(th(head, scope="row", title=title), cells)


def legend(*kinds: tuple[str, str, str]) -> Html:
    """(kind, text, meaning) each."""
    return p(
        [(span(text, class_=f"replica {kind}"), f" {meaning}  ") for kind, text, meaning in kinds],
        class_="quiet legend",
    )


def picture_of_cells(heads: Child, rows: Child, caption: str, left: Iterable[str] = ()) -> Html:
    """`left` says what there is besides what is drawn."""
    told = [f"{each} not drawn." for each in left]
    return together(
        div(
            table(thead(heads), tbody(rows), class_="replicas", aria_label=caption),
            class_="table",
            tabindex="0",
            role="region",
            aria_label=caption,
        ),
        p(" ".join(told), class_="quiet") if told else None,
    )


def more(count: int, one: str, many: str) -> list[str]:
    """Of what there are too many to draw: nothing of none."""
    if count <= 0:
        return []
    return [f"{number(count)} more {one} is" if count == 1 else f"{number(count)} more {many} are"]
