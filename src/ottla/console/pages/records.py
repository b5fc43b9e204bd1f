"""Records of a topic. The page has the form and the place for them; what is in it comes from the API."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from ottla.console.api import records as api
from ottla.console.api import topics as topics_api
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Html,
    a,
    button,
    details,
    div,
    form,
    input_,
    label,
    option,
    output,
    p,
    select,
    small,
    span,
    summary,
    together,
)
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import Input, api_form, api_path, dialog_with, opens
from ottla.console.pages.topics import topic_head
from ottla.console.records.shown import Decoder

_STARTS = {
    "newest": "newest first",
    "oldest": "from the beginning",
    "offset": "from an offset",
    "time": "from a time",
}


@page("/topics/{topic}/records")
async def records_page(cluster: Cluster, asked: api.Find) -> View:
    found = await topics_api.topic(cluster, topics_api.OneTopic(asked.topic))
    numbers = [each["partition"] for each in found["partitions"]]
    may_write = not cluster.read_only
    source = api_path(cluster, "topics", asked.topic, "records")
    body = together(
        topic_head(
            cluster, asked.topic, "records", opens("produce", "Write a record") if may_write else None
        ),
        _form(asked, numbers),
        div(
            button("Live", type="button", data_stream="tail", class_="plain"),
            button("Search everything", type="button", data_stream="search", class_="plain"),
            button("Stop", type="button", data_stop=True, hidden=True, class_="danger"),
            a("Save as JSON", href="#", data_export="jsonl", download=True),
            a("CSV", href="#", data_export="csv", download=True),
            a("Parquet", href="#", data_export="parquet", download=True),
            output("", id="progress", aria_live="polite"),
            class_="buttons records-buttons",
        ),
        div(id="records", class_="records", data_source=source, data_find=_query(asked)),
        div(id="more", class_="buttons"),
        _produce(cluster, asked.topic, numbers) if may_write else None,
    )
    return View(f"Records of {asked.topic}", body, "topics")


def _query(asked: api.Find) -> str:
    """What the page was asked for, as the API takes it."""
    from urllib.parse import urlencode

    given: dict[str, Any] = {}
    for field in fields(asked):
        value = getattr(asked, field.name)
        if field.name != "topic" and value not in (None, "", [], field.default):
            given[field.name] = (
                ",".join(map(str, value))
                if isinstance(value, list)
                else str(value).lower()
                if isinstance(value, bool)
                else value
            )
    return urlencode(given)


def _form(asked: api.Find, numbers: list[int]) -> Html:
    def choice(name: str, title: str, choices: dict[str, str], current: str) -> Html:
        listed = [option(text, value=value, selected=value == current) for value, text in choices.items()]
        return label(span(title), select(listed, name=name))

    def text(name: str, title: str, value: object, hint: str = "") -> Html:
        shown = "" if value is None else str(value)
        return label(
            span(title),
            input_(
                type="text", name=name, value=shown, placeholder=hint, spellcheck="false", autocomplete="off"
            ),
        )

    decoders = {name: name for name in get_args(Decoder)}
    start = asked.start if asked.start in _STARTS else "newest"
    partitions = {"": "all", **{str(number): str(number) for number in numbers}}
    chosen = str(asked.partitions[0]) if len(asked.partitions) == 1 else ""
    more = any(
        (
            asked.header,
            asked.path,
            asked.where,
            asked.key_as != "auto",
            asked.value_as != "auto",
            not asked.committed,
        )
    )
    return form(
        div(
            choice("start", "Read", _STARTS, start),
            text("offset", "Offset", asked.offset, "from this one on"),
            text("time", "Time", asked.time, "2026-01-31T12:00:00"),
            choice("partitions", "Partition", partitions, chosen),
            text("key", "Key contains", asked.key, "text, or /expression/"),
            text("value", "Value contains", asked.value, "text, or /expression/"),
            text("limit", "How many", asked.limit),
            class_="fields",
        ),
        details(
            summary("More filters and decoders"),
            div(
                text("header", "Header", asked.header, "name, or name: text"),
                text("path", "JSON path in the value", asked.path, "$.total > 100"),
                text("where", "Expression", asked.where, '$.total > 100 and not key ~ "test"'),
                choice("key_as", "Keys as", decoders, asked.key_as),
                choice("value_as", "Values as", decoders, asked.value_as),
                choice(
                    "committed",
                    "Transactions",
                    {"true": "committed only", "false": "open and aborted, too"},
                    "true" if asked.committed else "false",
                ),
                class_="fields",
            ),
            open=more,
        ),
        div(button("Show", type="submit"), class_="buttons"),
        method="get",
        class_="find",
    )


def _produce(cluster: Cluster, topic: str, numbers: list[int]) -> Html:
    formats = get_args(api.Format)
    inputs = (
        Input("key", "Key", hint="empty: none", long=False),
        Input("key_format", "The key is", choices=formats, value="text"),
        Input("value", "Value", long=True),
        Input("value_format", "The value is", choices=formats, value="text"),
        Input("headers", "Headers", "map", hint="a line for each, such as source=console"),
        Input(
            "partition", "Partition", "int", hint="empty: by the key's hash, or any", suggestions="partitions"
        ),
        Input("compression", "Compression", choices=("none", "gzip", "snappy", "lz4", "zstd")),
        Input("repeat", "How often", "int", value="1"),
    )
    made = api_form("POST", api_path(cluster, "topics", topic, "records"), inputs, "Write", then="show")
    hints = p(small(f"Partitions {numbers[0]} to {numbers[-1]}.")) if numbers else None
    return dialog_with("produce", f"Write to {topic}", hints, made)


PAGES = (records_page,)
