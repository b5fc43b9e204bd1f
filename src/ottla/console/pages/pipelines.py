"""Pipelines: Streams applications of the cluster, and one with its topology and how its queries do."""

from __future__ import annotations

from typing import Any

from ottla.console.api import pipelines as api
from ottla.console.clusters import Cluster
from ottla.console.html import Child, Html, a, code, div, h1, h2, link, p, section, span, together
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    data_table,
    figure,
    moment,
    number,
    rate,
    search_form,
    size,
    state_tag,
)
from ottla.console.pages.topology import picture

REFRESH_MS = 3000


@page("/pipelines")
async def pipelines_page(cluster: Cluster, asked: api.FindPipelines) -> View:
    told = await api.find_pipelines(cluster, asked)
    found = told["pipelines"]
    rows = [
        (
            a(
                each["applicationId"],
                href=link("c", cluster.name, "pipelines", each["applicationId"]),
                data_row=True,
            ),
            together(state_tag(each["state"]), span(each["error"], class_="bad") if each["error"] else None),
            number(len(each["queries"])),
            rate(_sum(each, "lastBatch", "rowsPerSecond")),
            number(_sum(each, "lag")),
            f"{each['host']}, process {each['pid']}",
            moment(each["startedMs"]),
        )
        for each in found
    ]
    columns = (
        "Application",
        "State",
        Column("Queries", numeric=True),
        Column("Rows per s", numeric=True),
        Column("Lag", numeric=True),
        "Runs on",
        "Since",
    )
    body = together(
        h1("Pipelines"),
        search_form(asked.q, "Find an application"),
        div(
            data_table(
                columns,
                rows,
                caption="Pipelines",
                empty="No application has announced itself: ottla run --http does.",
            ),
            p(f"The first {len(found)} of {number(told['total'])}.", class_="quiet")
            if told["total"] > len(found)
            else None,
            id="results",
            data_refreshes=REFRESH_MS,
        ),
    )
    return View("Pipelines", body, "pipelines")


@page("/pipelines/{application}")
async def pipeline_page(cluster: Cluster, asked: api.OnePipeline) -> View:
    found = await api.pipeline(cluster, asked)
    rows_per_s, lag = _sum(found, "lastBatch", "rowsPerSecond"), _sum(found, "lag")
    state_bytes = _sum(found, "stateBytes")
    body = together(
        h1(found["applicationId"]),
        div(
            p(
                state_tag(found["state"]),
                span("paused", class_="tag busy") if found.get("paused") else None,
                f" on {found['host']}, process {found['pid']}, since ",
                moment(found["startedMs"]),
                class_="quiet",
            ),
            div(
                figure("Rows per second", rate(rows_per_s), "of the last batches"),
                figure("Lag", number(lag), "records not yet taken"),
                figure("State", size(None if state_bytes is None else int(state_bytes)), "in Spark's stores"),
                figure("Restarts", number(_sum(found, "restarts"))),
                class_="figures",
            ),
            section(h2("Queries"), _queries(cluster, found)),
            section(h2("Topology"), _topology(cluster, found)),
            id="results",
            data_refreshes=REFRESH_MS,
        ),
        section(h2("Stores"), _stores(cluster, found)),
    )
    return View(found["applicationId"], body, "pipelines")


def _sum(found: dict[str, Any], *path: str) -> float | None:
    """Over all queries, of what they tell."""
    told = []
    for query in found["queries"]:
        value: Any = query
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, int | float):
            told.append(value)
    return sum(told) if told else None


def _queries(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = []
    for query in found["queries"]:
        batch = query.get("lastBatch") or {}
        failure: Child = None
        if query.get("failure"):
            failure = span(query["failure"], class_="bad")
        rows.append(
            (
                together(code(query["query"]), " ", failure),
                state_tag(query["state"]),
                query["kind"],
                [
                    together(a(topic, href=link("c", cluster.name, "topics", topic)), " ")
                    for topic in query["topics"]
                ],
                number(query["batches"]),
                rate(batch.get("rowsPerSecond")),
                number(query["lag"]),
                f"{number(batch['durationMs'])} ms" if "durationMs" in batch else "–",
                number(query.get("stateRows")),
            )
        )
    columns = (
        "Query",
        "State",
        "Kind",
        "Reads",
        Column("Batches", numeric=True),
        Column("Rows per s", numeric=True),
        Column("Lag", numeric=True),
        Column("Batch time", numeric=True),
        Column("Keys", numeric=True),
    )
    return data_table(columns, rows, caption="Queries", empty="It has no queries.")


def _topology(cluster: Cluster, found: dict[str, Any]) -> Html:
    drawn = picture(found["nodes"], lambda topic: link("c", cluster.name, "topics", topic))
    return div(drawn, class_="table drawing", tabindex="0", role="region", aria_label="Topology")


def _stores(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = [
        (
            code(store["name"]),
            store["kind"],
            code(store["query"]),
            a(store["changelog"], href=link("c", cluster.name, "topics", store["changelog"]))
            if store.get("changelog")
            else "–",
        )
        for store in found.get("stores", ())
    ]
    columns = ("Store", "Kind", "Query", "Changelog")
    return data_table(columns, rows, caption="Stores", empty="It keeps no state.")


PAGES = (pipelines_page, pipeline_page)
