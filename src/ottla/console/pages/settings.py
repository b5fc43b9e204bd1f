"""Settings of a resource, each with its source, its meaning, and a form to change it."""

from __future__ import annotations

from typing import Any

from ottla.console.clusters import Cluster
from ottla.console.html import (
    Html,
    button,
    code,
    details,
    div,
    form,
    input_,
    label,
    output,
    p,
    small,
    span,
    summary,
    together,
)
from ottla.console.pages.parts import api_path

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_GROUP_CONFIG": "this group",
}
# Only these can be taken back: the rest is not the resource's own.
_OWN = {"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_GROUP_CONFIG"}


def settings_section(cluster: Cluster, settings: list[dict[str, Any]], resource: tuple[str, str]) -> Html:
    """`resource` is where it is in the API, such as ("topics", "orders")."""
    if not settings:
        return p("There are none to be seen.", class_="empty")
    return together(
        label(
            span("Find a setting", class_="hidden"),
            input_(type="search", placeholder="Find a setting", data_filters="settings", autocomplete="off"),
            class_="filter",
        ),
        div([_setting(cluster, each, resource) for each in settings], class_="settings", id="settings"),
    )


def _setting(cluster: Cluster, each: dict[str, Any], resource: tuple[str, str]) -> Html:
    value = "(hidden)" if each["isSensitive"] else each["value"] if each["value"] is not None else "–"
    source = _SOURCES.get(each["source"], each["source"])
    may_change = not cluster.read_only and not each["isReadOnly"]
    return details(
        summary(
            code(each["name"]),
            span(value, class_="setting-value"),
            span(source, class_="tag" if each["isDefault"] else "tag busy"),
        ),
        p(each["doc"]) if each["doc"] else p("The cluster has no words for it.", class_="quiet"),
        small(f"Default: {each['default']}") if each["default"] not in (None, "") else None,
        _change(cluster, each, resource)
        if may_change
        else small("Only the broker's file can change it." if each["isReadOnly"] else None),
        data_text=each["name"],
        class_="setting",
    )


def _change(cluster: Cluster, each: dict[str, Any], resource: tuple[str, str]) -> Html:
    shown = "" if each["isSensitive"] else each["value"] or ""
    take_back = (
        button("Back to the default", type="submit", name="delete", value=each["name"], class_="plain")
        if each["source"] in _OWN
        else None
    )
    return form(
        label(
            span("New value"),
            input_(
                type="text", name=f"set.{each['name']}", value=shown, data_kind="text", spellcheck="false"
            ),
        ),
        div(button("Change", type="submit"), take_back, class_="buttons"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method="PATCH",
        data_action=api_path(cluster, *resource, "settings"),
        data_then="reload",
        class_="api",
        autocomplete="off",
    )
