"""The list of topics, and one topic with all its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ottla.console.api import topics as api
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Child,
    Html,
    a,
    div,
    h1,
    h2,
    input_,
    label,
    link,
    p,
    section,
    span,
    th,
    together,
    tr,
)
from ottla.console.pages.cells import DRAWN_PARTITIONS_MAX, cell, cells_row, legend, more, picture_of_cells
from ottla.console.pages.charts import traffic_charts
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    Input,
    api_form,
    api_path,
    data_table,
    dialog_with,
    figure,
    number,
    opens,
    pages_of,
    rate,
    search_form,
    size,
    state_tag,
    tabs,
    typed_name,
)
from ottla.console.pages.settings import settings_section


@page("/topics")
async def topics_page(cluster: Cluster, asked: api.FindTopics) -> View:
    found = await api.find_topics(cluster, asked)

    def address(**changed: object) -> str:
        given: dict[str, object] = {
            "q": asked.q,
            "sort": asked.sort if asked.sort != "name" else None,
            "down": asked.down,
            "internal": asked.internal,
            **changed,
        }
        return link("c", cluster.name, "topics", **given)

    rows = [
        (
            together(
                a(topic["name"], href=link("c", cluster.name, "topics", topic["name"]), data_row=True),
                span("internal", class_="tag") if topic["internal"] else None,
            ),
            number(topic["partitions"]),
            number(topic["replicationFactor"]),
            number(topic["records"]),
            rate(topic["recordsPerSecond"]),
            size(topic["sizeBytes"]),
            span(number(topic["unhealthy"]), class_="bad") if topic["unhealthy"] else "0",
        )
        for topic in found["topics"]
    ]
    columns = (
        Column("Topic", "name"),
        Column("Partitions", "partitions", numeric=True),
        Column("Replicas", "replicas", numeric=True),
        Column("Records", numeric=True),
        Column("Written per s", "rate", numeric=True),
        Column("Size", "size", numeric=True),
        Column("In trouble", "unhealthy", numeric=True),
    )
    internal = label(
        input_(type="checkbox", name="internal", value="true", checked=asked.internal, data_submits=True),
        span("with internal topics"),
        class_="check",
    )
    body = together(
        div(
            h1("Topics"),
            None if cluster.read_only else opens("create", "Create a topic"),
            class_="title",
        ),
        search_form(asked.q, "Find a topic", internal, sort=asked.sort, down="true" if asked.down else ""),
        div(
            p(f"{number(found['total'])} {'topic' if found['total'] == 1 else 'topics'}", class_="quiet"),
            data_table(
                columns,
                rows,
                caption="Topics",
                empty="No topic has that in its name." if asked.q else "There are no topics yet.",
                sorted_by=(asked.sort, asked.down),
                sort_link=lambda sort, down: address(sort=sort, down="true" if down else ""),
            ),
            pages_of(found["page"], found["pages"], lambda page: address(page=page)),
            id="results",
        ),
        None if cluster.read_only else _create(cluster),
    )
    return View("Topics", body, "topics")


def _create(cluster: Cluster) -> Html:
    inputs = (
        Input("name", "Name", hint="letters, digits, '.', '_' and '-'", required=True),
        Input("partitions", "Partitions", "int", hint="empty: the cluster's default"),
        Input("replication_factor", "Replicas of each", "int", hint="empty: the cluster's default"),
        Input("settings", "Settings", "map", hint="a line for each, such as retention.ms=3600000"),
    )
    made = api_form("POST", api_path(cluster, "topics"), inputs, "Create", then="go")
    return dialog_with("create", "Create a topic", made)


Part = Literal["partitions", "settings", "consumers"]


@dataclass(frozen=True, slots=True)
class TopicPage:
    topic: Annotated[str, "its name"]
    part: Part = "partitions"


def topic_head(cluster: Cluster, name: str, current: str, *buttons: Child) -> Html:
    base = ("c", cluster.name, "topics", name)
    return together(
        div(h1(name), div(buttons, class_="buttons"), class_="title"),
        tabs(
            current,
            (
                ("partitions", "Partitions", link(*base)),
                ("records", "Records", link(*base, "records")),
                ("consumers", "Consumers", link(*base, part="consumers")),
                ("settings", "Settings", link(*base, part="settings")),
            ),
        ),
    )


@page("/topics/{topic}")
async def topic_page(cluster: Cluster, asked: TopicPage) -> View:
    name = asked.topic
    actions: list[Child] = []
    dialogs: list[Child] = []
    match asked.part:
        case "partitions":
            found = await api.topic(cluster, api.OneTopic(name))
            body = _partitions(cluster, found)
            if not cluster.read_only:
                actions = [
                    opens("grow", "Add partitions"),
                    opens("empty", "Empty", danger=True),
                    opens("delete", "Delete", danger=True),
                ]
                dialogs = _dialogs(cluster, name, len(found["partitions"]))
        case "settings":
            settings = (await api.topic_settings(cluster, api.OneTopic(name)))["settings"]
            body = section(h2("Settings"), settings_section(cluster, settings, ("topics", name)))
        case "consumers":
            body = _consumers(cluster, await api.topic_consumers(cluster, api.OneTopic(name)))
    return View(name, together(topic_head(cluster, name, asked.part, *actions), body, dialogs), "topics")


def _partitions(cluster: Cluster, found: dict[str, Any]) -> Html:
    partitions = found["partitions"]
    records = sum((each["endOffset"] or 0) - (each["startOffset"] or 0) for each in partitions)
    on_disk = sum(sum(each["replicaSizes"].values()) for each in partitions)
    troubled = sum(each["leader"] < 0 or len(each["isr"]) < len(each["replicas"]) for each in partitions)
    rows = [
        (
            each["partition"],
            span("none", class_="bad") if each["leader"] < 0 else each["leader"],
            ", ".join(map(str, each["replicas"])),
            span(", ".join(map(str, each["isr"])) or "none", class_="bad")
            if len(each["isr"]) < len(each["replicas"])
            else ", ".join(map(str, each["isr"])),
            number(each["startOffset"]),
            number(each["endOffset"]),
            size(each["sizeBytes"]),
        )
        for each in partitions
    ]
    columns = (
        Column("Partition", numeric=True),
        Column("Leader", numeric=True),
        "Replicas",
        "In sync",
        Column("First offset", numeric=True),
        Column("Next offset", numeric=True),
        Column("Size", numeric=True),
    )
    return together(
        div(
            figure("Partitions", number(len(partitions))),
            figure("Records", number(records), "by their offsets"),
            figure("On all disks", size(on_disk)),
            figure("In trouble", number(troubled), bad=troubled > 0),
            class_="figures",
        ),
        traffic_charts(api_path(cluster, "topics", found["name"], "history")),
        section(h2("Partitions"), data_table(columns, rows, caption="Partitions")),
        section(h2("Replicas across brokers"), _picture(found)),
    )


def _picture(found: dict[str, Any]) -> Html:
    """A row for each broker, a column for each partition."""
    drawn = found["partitions"][:DRAWN_PARTITIONS_MAX]
    brokers = sorted({*found["brokers"], *(broker for each in drawn for broker in each["replicas"])})

    def place(broker: int, each: dict[str, Any]) -> Html:
        if broker not in each["replicas"]:
            return cell()
        if broker == each["leader"]:
            return cell("leads", "L", f"partition {each['partition']}: broker {broker} leads")
        if broker in each["isr"]:
            return cell("follows", "F", f"partition {each['partition']}: in sync")
        return cell("lags", "!", f"partition {each['partition']}: not in sync")

    heads = tr(th("Partition", scope="col"), [th(each["partition"], scope="col") for each in drawn])
    rows = [cells_row(f"Broker {broker}", [place(broker, each) for each in drawn]) for broker in brokers]
    left = more(len(found["partitions"]) - len(drawn), "partition", "partitions")
    return together(
        legend(("leads", "L", "leads"), ("follows", "F", "follows in sync"), ("lags", "!", "not in sync")),
        picture_of_cells(heads, rows, "Replicas across brokers", left),
    )


def _consumers(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = [
        (
            a(each["group"], href=link("c", cluster.name, "groups", each["group"]), data_row=True),
            each["type"],
            state_tag(each["state"]),
            number(each["partitions"]),
            number(each["lag"]),
        )
        for each in found["consumers"]
    ]
    columns = ("Group", "Type", "State", Column("Partitions", numeric=True), Column("Lag", numeric=True))
    empty = "No group has committed offsets in this topic."
    return section(h2("Groups that read it"), data_table(columns, rows, caption="Consumers", empty=empty))


def _dialogs(cluster: Cluster, name: str, count: int) -> list[Child]:
    place = ("topics", name)
    grow = Input("count", "Partitions in all", "int", value=str(count + 1), required=True)
    return [
        dialog_with(
            "grow",
            "Add partitions",
            p("Records stay where they are; new ones with the same key may go elsewhere."),
            api_form("POST", api_path(cluster, *place, "partitions"), [grow], "Add"),
        ),
        dialog_with(
            "empty",
            "Empty the topic",
            p("All records that are in it now are deleted. The topic stays."),
            api_form(
                "POST",
                api_path(cluster, *place, "empty"),
                [typed_name(name, "this cannot be undone")],
                "Delete all records",
                danger=True,
            ),
        ),
        dialog_with(
            "delete",
            "Delete the topic",
            p("The topic and all its records are deleted, on all brokers."),
            api_form(
                "DELETE",
                api_path(cluster, *place),
                [typed_name(name, "this cannot be undone")],
                "Delete the topic",
                danger=True,
                then="go",
            ),
        ),
    ]


PAGES = (topics_page, topic_page)
