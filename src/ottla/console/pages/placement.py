"""Balance: who leads, where replicas are to be, and how far moves have come."""

from __future__ import annotations

from typing import Any

from ottla.console.api import placement as api
from ottla.console.clusters import Cluster
from ottla.console.html import (
    Child,
    Html,
    a,
    button,
    div,
    element,
    form,
    h1,
    h2,
    input_,
    label,
    link,
    option,
    output,
    p,
    section,
    select,
    small,
    span,
    table,
    tbody,
    td,
    th,
    thead,
    together,
    tr,
)
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
    removal,
    removal_dialog,
    size,
)

REFRESH_MS = 2000
_fieldset, _legend, _progress = element("fieldset"), element("legend"), element("progress")


@page("/balance")
async def balance_page(cluster: Cluster, asked: api.NoParameters) -> View:
    led = await api.leaders(cluster, asked)
    moving = await api.reassignments(cluster, asked)
    known = await cluster.topics.get()
    brokers = known.info.brokers
    may_change = not cluster.read_only
    body = together(
        div(
            h1("Balance"),
            div(
                opens("prefer", "Elect preferred leaders"),
                opens("unclean", "Unclean election", danger=True),
                class_="buttons",
            )
            if may_change
            else None,
            class_="title",
        ),
        div(
            div(
                figure("Brokers", number(len(brokers))),
                figure("Led by others", number(led["total"]), "than their first replica"),
                figure("On the move", number(moving["total"]), "partitions"),
                class_="figures",
            ),
            section(h2("Moves under way"), _moves(cluster, moving)),
            section(h2("Led by others than their first replica"), _led(cluster, led))
            if led["total"]
            else None,
            id="results",
            data_refreshes=REFRESH_MS,
        ),
        section(h2("Replicas on each broker"), _spread(cluster, known)),
        section(h2("Move replicas"), _plan(cluster, list(brokers)), div(id="plan")) if may_change else None,
        _dialogs(cluster) if may_change else None,
    )
    return View("Balance", body, "balance")


def _moves(cluster: Cluster, moving: dict[str, Any]) -> Html:
    rows = [
        (
            a(f"{each['topic']}-{each['partition']}", href=link("c", cluster.name, "topics", each["topic"])),
            ", ".join(map(str, each["replicas"])),
            ", ".join(map(str, each["adding"])) or "–",
            ", ".join(map(str, each["removing"])) or "–",
            together(
                f"{size(each['doneBytes'])} of {size(each['totalBytes'])} ",
                _progress(
                    value=each["doneBytes"],
                    max=max(each["totalBytes"], 1),
                    aria_label=f"{each['topic']}-{each['partition']}",
                ),
            ),
            _call_off(cluster, f"{each['topic']}-{each['partition']}"),
        )
        for each in moving["partitions"]
    ]
    columns = ("Partition", "Replicas", "Comes", "Goes", Column("Copied", numeric=True), "")
    return data_table(columns, rows, caption="Moves under way", empty="Nothing is being moved.")


def _call_off(cluster: Cluster, partition: str) -> Html | None:
    return removal(cluster, "DELETE", ("reassignments",), {"partitions": [partition]}, partition, "Call off")


def _led(cluster: Cluster, led: dict[str, Any]) -> Html:
    rows = [
        (
            a(f"{each['topic']}-{each['partition']}", href=link("c", cluster.name, "topics", each["topic"])),
            "nobody" if each["leader"] < 0 else each["leader"],
            each["preferred"],
            "yes" if each["canLead"] else span("not in sync", class_="bad"),
        )
        for each in led["partitions"]
    ]
    columns = ("Partition", Column("Led by", numeric=True), Column("First replica", numeric=True), "Can lead")
    return data_table(columns, rows, caption="Leaders")


def _spread(cluster: Cluster, known: Any) -> Html:
    """How many each broker leads and follows, as bars that can be compared."""
    leads = dict.fromkeys(known.info.brokers, 0)
    follows = dict.fromkeys(known.info.brokers, 0)
    for topic in known.by_name.values():
        for each in topic.partitions:
            if each.leader in leads:
                leads[each.leader] += 1
            for broker in each.replicas:
                if broker in follows and broker != each.leader:
                    follows[broker] += 1
    most = max((leads[broker] + follows[broker] for broker in leads), default=0) or 1
    svg, rect = element("svg"), element("rect")
    rows = [
        tr(
            th(f"Broker {broker}", scope="row"),
            td(number(leads[broker]), class_="number"),
            td(number(follows[broker]), class_="number"),
            td(
                svg(
                    rect(width=100 * leads[broker] / most, height=10, class_="bar-0"),
                    rect(
                        x=100 * leads[broker] / most,
                        width=100 * follows[broker] / most,
                        height=10,
                        class_="bar-1",
                    ),
                    viewBox="0 0 100 10",
                    preserveAspectRatio="none",
                    class_="bar",
                    aria_hidden="true",
                )
            ),
        )
        for broker in leads
    ]
    heads = [
        th("Broker", scope="col"),
        th("Leads", scope="col", class_="number"),
        th("Follows", scope="col", class_="number"),
        th(span("Share", class_="hidden"), scope="col"),
    ]
    return div(
        table(thead(tr(heads)), tbody(rows), aria_label="Replicas on each broker"),
        class_="table spread",
        tabindex="0",
        role="region",
        aria_label="Replicas on each broker",
    )


def _plan(cluster: Cluster, brokers: list[int]) -> Html:
    return form(
        label(
            span("Topics"),
            input_(
                type="text",
                name="topics",
                data_kind="names",
                spellcheck="false",
                placeholder="orders, payments",
            ),
            small("empty: all topics"),
        ),
        _fieldset(
            _legend("Brokers that replicas may be on"),
            [
                label(
                    input_(type="checkbox", name="brokers", value=broker, checked=True, data_kind="each"),
                    span(broker),
                    class_="check",
                )
                for broker in brokers
            ],
        ),
        label(
            span("How"),
            select(
                [
                    option("keep what is there, move only what has to", value="keep"),
                    option("spread everything evenly", value="spread"),
                ],
                name="how",
                data_kind="text",
            ),
        ),
        div(button("Show the plan", type="submit"), class_="buttons"),
        output(class_="answer", aria_live="polite"),
        method="dialog",
        data_method="POST",
        data_action=api_path(cluster, "reassignments", "plan"),
        data_then="plan",
        data_moves=api_path(cluster, "reassignments"),
        class_="api panel",
        autocomplete="off",
    )


def _dialogs(cluster: Cluster) -> Child:
    topics = Input("topics", "Topics", "names", hint="such as orders, payments; empty: all")
    return together(
        removal_dialog(
            "Call off the move", "What was copied so far is thrown away; replicas stay where they were."
        ),
        dialog_with(
            "prefer",
            "Elect preferred leaders",
            p("Partitions are led by their first replica again, where that is in sync. Nothing is lost."),
            api_form("POST", api_path(cluster, "leaders"), [topics], "Elect"),
        ),
        dialog_with(
            "unclean",
            "Unclean election",
            p(
                "Where nobody leads and no replica in sync is left, any other that is up leads. "
                "Records that only the lost ones had are gone for good."
            ),
            api_form(
                "POST",
                api_path(cluster, "leaders"),
                [
                    topics,
                    Input("kind", "Kind", value="unclean", hidden=True),
                    Input("confirm", f"Type {api.CONFIRM_UNCLEAN} to confirm", required=True),
                ],
                "Elect",
                danger=True,
            ),
        ),
    )


PAGES = (balance_page,)
