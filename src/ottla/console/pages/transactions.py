"""Transactions: those that are open first, the oldest of them at the top."""

from __future__ import annotations

from ottla.console.api import transactions as api
from ottla.console.clusters import Cluster
from ottla.console.html import Child, a, code, div, h1, h2, input_, label, link, p, section, span, together
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    api_form,
    api_path,
    data_table,
    dialog_with,
    duration,
    figure,
    moment,
    number,
    opens,
    search_form,
    state_tag,
    typed_name,
)


@page("/transactions")
async def transactions_page(cluster: Cluster, asked: api.FindTransactions) -> View:
    found = await api.find_transactions(cluster, asked)
    rows = [
        (
            a(
                each["transactionalId"],
                href=link("c", cluster.name, "transactions", each["transactionalId"]),
                data_row=True,
            ),
            together(
                state_tag(each["state"]), span("overdue", class_="tag bad") if each.get("overdue") else None
            ),
            duration(each.get("ageMs")),
            duration(each.get("timeoutMs")),
            each.get("producerId", "–"),
            number(len(each.get("partitions", ()))),
        )
        for each in found["transactions"]
    ]
    columns = (
        "Transactional id",
        "State",
        Column("Open for", numeric=True),
        Column("Time-out", numeric=True),
        Column("Producer", numeric=True),
        Column("Partitions", numeric=True),
    )
    only_open = label(
        input_(type="checkbox", name="open", value="true", checked=asked.open, data_submits=True),
        span("only open ones"),
        class_="check",
    )
    shown = len(found["transactions"])
    body = together(
        h1("Transactions"),
        search_form(asked.q, "Find a transactional id", only_open),
        div(
            p(
                f"{number(found['total'])} in all" + (f", {shown} shown" if shown < found["total"] else ""),
                class_="quiet",
            ),
            data_table(columns, rows, caption="Transactions", empty="There are none."),
            id="results",
        ),
    )
    return View("Transactions", body, "transactions")


@page("/transactions/{transactional_id}")
async def transaction_page(cluster: Cluster, asked: api.OneTransaction) -> View:
    found = await api.transaction(cluster, asked)
    name = found["transactionalId"]
    may_abort = found["state"] == "Ongoing" and not cluster.read_only
    actions: Child = opens("abort", "Abort", danger=True) if may_abort else None
    rows = [
        (
            a(each["topic"], href=link("c", cluster.name, "topics", each["topic"])),
            each["partition"],
            number(each["startOffset"]),
            moment(each["lastTimestamp"]),
        )
        for each in found["producers"]
    ]
    columns = ("Topic", Column("Partition", numeric=True), Column("Begins at", numeric=True), "Last record")
    abort = dialog_with(
        "abort",
        "Abort the transaction",
        p("What it wrote is never seen by readers of committed records, and its producer is fenced."),
        api_form(
            "POST",
            api_path(cluster, "transactions", name, "abort"),
            [typed_name(name, "its application will fail")],
            "Abort",
            danger=True,
        ),
    )
    body = together(
        div(h1(name), div(actions, class_="buttons"), class_="title"),
        div(
            figure("State", found["state"]),
            figure("Open for", duration(found["ageMs"]), bad=found["overdue"]),
            figure("Time-out", duration(found["timeoutMs"])),
            figure("Producer", code(found["producerId"]), f"epoch {found['producerEpoch']}"),
            class_="figures",
        ),
        section(
            h2("Where it has written"),
            data_table(columns, rows, caption="Partitions", empty="No partition waits for its end."),
        ),
        abort if may_abort else None,
    )
    return View(name, body, "transactions")


PAGES = (transactions_page, transaction_page)
