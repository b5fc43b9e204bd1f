"""What all pages have around them."""

from __future__ import annotations

from typing import NamedTuple

from ottla import __version__
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Html,
    a,
    button,
    dd,
    details,
    dialog,
    div,
    dl,
    dt,
    element,
    footer,
    form,
    h1,
    h2,
    header,
    li,
    link,
    main,
    meta,
    nav,
    output,
    p,
    span,
    summary,
    together,
    ul,
)
from ottla.console.pages.page import View
from ottla.console.problems import Problem

SECTIONS = {
    "overview": ("Overview", "o"),
    "topics": ("Topics", "t"),
    "groups": ("Groups", "g"),
    "transactions": ("Transactions", "x"),
    "balance": ("Balance", "b"),
    "connectors": ("Connectors", "c"),
    "pipelines": ("Pipelines", "p"),
    "acls": ("Access rules", "a"),
    "users": ("Users", "u"),
    "quotas": ("Quotas", "q"),
    "tokens": ("Tokens", "k"),
}
_THEMES = {"light", "dark"}
_KEYS = {
    "/": "search",
    "j k": "next and previous row",
    "Enter": "open the row",
    "?": "this list",
    "Esc": "close",
}

_html, _head, _body, _title = (element(tag) for tag in ("html", "head", "body", "title"))
_link, _script = element("link"), element("script")


class Surroundings(NamedTuple):
    cluster: Cluster | None
    clusters: tuple[str, ...]
    has_session: bool
    user: str
    """Who looks, or a dash."""
    token: str
    theme: str


def section_link(cluster: Cluster, section: str) -> str:
    return link("c", cluster.name) if section == "overview" else link("c", cluster.name, section)


def page_html(view: View, around: Surroundings) -> str:
    cluster = around.cluster
    document = _html(
        _head(
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(name="csrf-token", content=around.token),
            meta(name="cluster", content=cluster.name if cluster else ""),
            _title(f"{view.title} · {cluster.name} · Ottla" if cluster else f"{view.title} · Ottla"),
            _link(rel="icon", href="/static/icon.svg", type="image/svg+xml"),
            _link(rel="stylesheet", href="/static/console.css"),
            _script(type="module", src="/static/main.js"),
        ),
        _body(
            a("Skip to the content", href="#content", class_="skip"),
            _top(around),
            div(
                _navigation(cluster, view.section) if cluster else None,
                main(view.body, id="content", tabindex="-1"),
                class_="columns",
            ),
            _help(cluster),
            div(id="notices", role="status", aria_live="polite"),
        ),
        lang="en",
        data_theme=around.theme if around.theme in _THEMES else None,
    )
    return "<!doctype html>" + document


def problem_view(problem: Problem) -> View:
    titles = {
        403: "Not allowed",
        404: "Not found",
        501: "This cluster does not have it",
        503: "The cluster does not answer",
    }
    title = titles.get(problem.status, "This did not work")
    body = together(
        h1(title),
        div(p(problem.text), p(problem.code, class_="quiet") if problem.code else None, class_="problem"),
        p(button("Try again", type="button", data_reload=True)),
    )
    return View(title, body)


def _top(around: Surroundings) -> Html:
    cluster = around.cluster
    named: Html | None = None
    if cluster is not None and len(around.clusters) > 1:
        others = [
            li(a(name, href=link("c", name), aria_current="true" if name == cluster.name else None))
            for name in around.clusters
        ]
        named = details(summary(cluster.name), ul(others), class_="clusters")
    elif cluster is not None:
        named = span(cluster.name, class_="cluster")
    return header(
        a(span("ottla", class_="mark"), href="/", class_="brand", aria_label="Ottla console, home"),
        named,
        span("read-only", class_="tag") if cluster is not None and cluster.read_only else None,
        span(class_="gap"),
        span(around.user, class_="user", title="who you are") if around.user != "-" else None,
        _log_out() if around.has_session else None,
        a("API", href="/api"),
        button("Keys", type="button", data_opens="keys", class_="plain"),
        button("Theme", type="button", data_theme_button=True, class_="plain"),
        class_="top",
    )


def _log_out() -> Html:
    return form(
        button("Log out", type="submit", class_="plain"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method="POST",
        data_action="/api/logout",
        data_then="to",
        class_="api inline",
    )


def _navigation(cluster: Cluster, current: str) -> Html:
    entries = [
        li(
            a(
                name,
                href=section_link(cluster, section),
                data_key=key,
                aria_current="page" if section == current else None,
            )
        )
        for section, (name, key) in _sections_of(cluster).items()
    ]
    return nav(
        ul(entries), footer(f"Ottla {__version__}", class_="quiet"), class_="sections", aria_label="Sections"
    )


def _sections_of(cluster: Cluster | None) -> dict[str, tuple[str, str]]:
    """Those that there is something to see in."""
    missing = set() if cluster is not None and cluster.connect is not None else {"connectors"}
    return {section: named for section, named in SECTIONS.items() if section not in missing}


def _help(cluster: Cluster | None) -> Html:
    keys = {**_KEYS, **{f"g {key}": name for name, key in _sections_of(cluster).values()}}
    rows = [together(dt(each), dd(what)) for each, what in keys.items()]
    return dialog(h2("Keys"), dl(rows, class_="keys"), _closing(), id="keys", aria_label="Keys")


def _closing() -> Html:
    return button("Close", type="button", data_closes=True, class_="plain")
