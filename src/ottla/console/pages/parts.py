"""What several pages are made of: tables, forms that call the API, numbers for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.console.clusters import Cluster
from ottla.console.html import (
    Child,
    Html,
    a,
    button,
    dialog,
    div,
    form,
    h2,
    input_,
    label,
    link,
    nav,
    option,
    output,
    p,
    select,
    small,
    span,
    table,
    tbody,
    td,
    textarea,
    th,
    thead,
    time_,
    tr,
)

_GOOD = {"Stable", "CompleteCommit", "CompleteAbort", "RUNNING", "running"}
_BUSY = {
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Ongoing",
    "PAUSED",
    "RESTARTING",
    "UNASSIGNED",
    "REBALANCING",
    "PENDING_SHUTDOWN",
    "waiting",
    "paused",
}
_BAD = {"Dead", "FAILED", "ERROR", "UNKNOWN", "failed"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


_MOMENT_MAX = 253_402_300_799_000
"""The end of the year 9999; clients write what they like."""


def size(count: int | None) -> str:
    if count is None or count < 0:
        return "–"
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def number(count: int | float | None) -> str:
    """With thin spaces between thousands."""
    if count is None:
        return "–"
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    return f"{count:,}".replace(",", "\u2009")


def rate(per_second: float | None) -> str:
    if per_second is None:
        return "–"
    return number(round(per_second) if per_second >= 10 or per_second == 0 else round(per_second, 1))


def moment(timestamp_ms: int | None) -> Html | str:
    if timestamp_ms is None or timestamp_ms < 0:
        return "–"
    if timestamp_ms > _MOMENT_MAX:
        return f"{timestamp_ms} ms"
    text = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    return time_(text.removesuffix("+00:00"), datetime=text, title="UTC")


def duration(ms: int | None) -> str:
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms // 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds} s"


def state_tag(state: str) -> Html:
    """A word with a colour that says whether anything is to be done."""
    kind = "good" if state in _GOOD else "busy" if state in _BUSY else "bad" if state in _BAD else ""
    return span(state, class_=f"tag state {kind}".strip())


class Column(NamedTuple):
    title: str
    sort: str = ""
    """By what the column is sorted, if it can be."""
    numeric: bool = False


def data_table(
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[Child]],
    *,
    caption: str,
    empty: str = "Nothing here.",
    sorted_by: tuple[str, bool] | None = None,
    sort_link: Any = None,
) -> Html:
    """`sort_link` makes the address of the same table, sorted otherwise."""
    known = [Column(each) if isinstance(each, str) else each for each in columns]
    heads = []
    for column in known:
        is_current = sorted_by is not None and column.sort != "" and sorted_by[0] == column.sort
        goes_down = bool(is_current and sorted_by and sorted_by[1])
        shown: Child = column.title or span("Actions", class_="hidden")
        if column.sort and sort_link is not None:
            down = not goes_down if is_current else column.numeric
            arrow = (" ↓" if goes_down else " ↑") if is_current else ""
            shown = a(column.title, arrow, href=sort_link(column.sort, down))
        order = ("descending" if goes_down else "ascending") if is_current else None
        heads.append(th(shown, scope="col", class_="number" if column.numeric else None, aria_sort=order))
    body = [
        tr(
            td(cell, class_="number" if column.numeric else None)
            for column, cell in zip(known, row, strict=True)
        )
        for row in rows
    ]
    if not body:
        return p(empty, class_="empty")
    return div(
        table(thead(tr(heads)), tbody(body), aria_label=caption),
        class_="table",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def pages_of(page: int, pages: int, to_page: Any) -> Html | None:
    if pages <= 1:
        return None
    return nav(
        a("Previous", href=to_page(page - 1), rel="prev") if page > 1 else span("Previous", class_="quiet"),
        span(f"Page {page} of {pages}"),
        a("Next", href=to_page(page + 1), rel="next") if page < pages else span("Next", class_="quiet"),
        class_="pages",
        aria_label="Pages",
    )


def search_form(given: str, what: str, *others: Child, **kept: object) -> Html:
    """Searches as one types; `kept` are other parameters of the page."""
    hidden = [input_(type="hidden", name=name, value=str(value)) for name, value in kept.items() if value]
    return form(
        label(
            span(what, class_="hidden"),
            input_(
                type="search", name="q", value=given, placeholder=what, autocomplete="off", data_search=True
            ),
        ),
        hidden,
        others,
        button("Search", type="submit", class_="plain"),
        method="get",
        class_="search",
        data_live=True,
    )


class Input(NamedTuple):
    """A field of a form; `kind` says how its text becomes JSON: text, int, number, list, map, bool."""

    name: str
    title: str
    kind: str = "text"
    value: str = ""
    hint: str = ""
    choices: Sequence[str] = ()
    required: bool = False
    long: bool = False
    secret: bool = False
    hidden: bool = False
    suggestions: str = ""
    """The id of a list of them."""


def api_path(cluster: Cluster, *segments: str) -> str:
    return link("api", "clusters", cluster.name, *segments)


def api_form(
    method: str,
    action: str,
    inputs: Sequence[Input],
    submit: str,
    *,
    danger: bool = False,
    then: str = "reload",
    inline: bool = False,
) -> Html:
    """Sends its fields as JSON; `then` is `reload`, `show` for the answer, or `go` to where it says. `inline`
    is one in a row of a table: a button, and a notice of what goes wrong.

    By itself, before its script is there, a form of this method sends nothing anywhere.
    """
    return form(
        [_field(each) for each in inputs],
        button(submit, type="submit", class_="plain")
        if inline
        else div(button(submit, type="submit", class_="danger" if danger else None), class_="buttons"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method=method,
        data_action=action,
        data_then=then,
        class_="api inline" if inline else "api",
        autocomplete="off",
    )


def dialog_with(name: str, title: str, *content: Child) -> Html:
    return dialog(
        div(
            h2(title, id=f"{name}-title"),
            button("Close", type="button", data_closes=True, class_="plain"),
            class_="dialog-head",
        ),
        content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def opens(name: str, text: str, *, danger: bool = False) -> Html:
    return button(text, type="button", data_opens=name, class_="danger" if danger else None)


def typed_name(name: str, what: str) -> Input:
    return Input("confirm", f"Type {name} to confirm", hint=what, required=True)


def removal(
    cluster: Cluster,
    method: str,
    place: Sequence[str],
    values: Mapping[str, Any],
    name: str,
    text: str = "Remove",
) -> Html | None:
    """A button that has the one dialog of the page ask for the name; `values` say what is meant."""
    if cluster.read_only:
        return None
    return button(
        text,
        type="button",
        class_="plain danger",
        aria_label=f"{text} {name}",
        data_opens="remove",
        data_method=method,
        data_action=api_path(cluster, *place),
        data_values=json.dumps({key: value for key, value in values.items() if value is not None}),
        data_typed=name,
    )


def removal_dialog(title: str, what: str) -> Html:
    """The script puts in what the button that opened it is about."""
    typed = typed_name("", "this cannot be undone")
    return dialog_with("remove", title, p(what), api_form("DELETE", "", [typed], title, danger=True))


def tabs(current: str, entries: Sequence[tuple[str, str, str]]) -> Html:
    """(key, title, address) each."""
    return nav(
        [
            a(title, href=address, aria_current="page" if key == current else None)
            for key, title, address in entries
        ],
        class_="tabs",
        aria_label="Parts",
    )


def figure(title: str, value: Child, note: Child = None, *, bad: bool = False) -> Html:
    return div(
        span(title, class_="figure-title"),
        span(value, class_="figure-value bad" if bad else "figure-value"),
        small(note) if note else None,
        class_="figure",
    )


def _field(each: Input) -> Html:
    if each.hidden:
        return input_(type="hidden", name=each.name, value=each.value, data_kind=each.kind)
    common: dict[str, Any] = {"name": each.name, "required": each.required, "data_kind": each.kind}
    if each.choices:
        choices = [option(choice, value=choice, selected=choice == each.value) for choice in each.choices]
        shown = select(choices, **common)
    elif each.kind == "bool":
        return label(
            input_(type="checkbox", checked=each.value == "true", **common), span(each.title), class_="check"
        )
    elif each.long or each.kind == "map":
        shown = textarea(each.value, rows=4 if each.kind == "map" else 6, spellcheck="false", **common)
    else:
        kind = "password" if each.secret else "text"
        mode = "numeric" if each.kind in {"int", "number"} else None
        shown = input_(
            type=kind,
            value=each.value,
            inputmode=mode,
            autocomplete="new-password" if each.secret else "off",
            spellcheck="false",
            list=each.suggestions or None,
            **common,
        )
    return label(span(each.title), shown, small(each.hint) if each.hint else None)
