"""The cluster at a glance, and its brokers one by one."""

from __future__ import annotations

from typing import Any

from ottla.console.api import overview as api
from ottla.console.clusters import Cluster
from ottla.console.html import Html, a, code, dd, div, dl, dt, h1, h2, link, p, section, span, together
from ottla.console.pages.charts import traffic_charts
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import Column, api_path, data_table, figure, number, size
from ottla.console.pages.settings import settings_section


@page("")
async def overview_page(cluster: Cluster, asked: api.Nothing) -> View:
    found = await api.overview(cluster, asked)
    body = together(
        h1("Overview"),
        div(
            figure("Brokers", number(len(found["brokers"]))),
            figure("Topics", number(found["topics"])),
            figure("Partitions", number(found["partitions"])),
            figure(
                "Offline",
                number(found["offlinePartitions"]),
                "partitions without a leader",
                bad=found["offlinePartitions"] > 0,
            ),
            figure(
                "Under-replicated",
                number(found["underReplicatedPartitions"]),
                "partitions with a replica that lags",
                bad=found["underReplicatedPartitions"] > 0,
            ),
            figure("On disk", size(sum(broker["sizeBytes"] for broker in found["brokers"]))),
            class_="figures",
        ),
        _unhealthy(cluster, found),
        traffic_charts(api_path(cluster, "history")),
        section(h2("Brokers"), _brokers(cluster, found)),
        section(h2("Metadata quorum"), _quorum(found["quorum"])),
        section(h2("Cluster"), _facts(cluster, found)),
    )
    return View("Overview", body, "overview")


def _unhealthy(cluster: Cluster, found: dict[str, Any]) -> Html | None:
    if not found["unhealthy"]:
        return None
    rows = [
        (
            a(f"{each['topic']}-{each['partition']}", href=link("c", cluster.name, "topics", each["topic"])),
            "none" if each["leader"] < 0 else each["leader"],
            ", ".join(map(str, each["replicas"])),
            ", ".join(map(str, each["isr"])) or "none",
        )
        for each in found["unhealthy"]
    ]
    total = found["offlinePartitions"] + found["underReplicatedPartitions"]
    return section(
        h2("What needs attention"),
        data_table(("Partition", "Leader", "Replicas", "In sync"), rows, caption="Partitions in trouble"),
        p(f"The first {len(rows)} of {total}.", class_="quiet") if total > len(rows) else None,
    )


def _brokers(cluster: Cluster, found: dict[str, Any]) -> Html:
    rows = []
    for broker in found["brokers"]:
        free = [
            f"{size(each['usableBytes'])} of {size(each['totalBytes'])}"
            for each in broker["directories"]
            if each["totalBytes"] >= 0
        ]
        failed = [each["path"] for each in broker["directories"] if each["error"]]
        rows.append(
            (
                together(
                    a(f"Broker {broker['id']}", href=link("c", cluster.name, "brokers", broker["id"])),
                    span("controller", class_="tag") if broker["id"] == found["controller"] else None,
                    span(f"failed: {', '.join(failed)}", class_="tag bad") if failed else None,
                ),
                code(f"{broker['host']}:{broker['port']}"),
                broker["rack"] or "–",
                number(broker["leads"]),
                number(broker["replicas"]),
                size(broker["sizeBytes"]),
                ", ".join(free) or "–",
            )
        )
    columns = (
        "Broker",
        "Address",
        "Rack",
        Column("Leads", numeric=True),
        Column("Replicas", numeric=True),
        Column("Size", numeric=True),
        Column("Free", numeric=True),
    )
    return data_table(columns, rows, caption="Brokers")


def _quorum(quorum: dict[str, Any]) -> Html:
    if "error" in quorum:
        return p(f"The cluster does not tell: {quorum['error']}", class_="empty")
    rows = [
        (
            together(
                f"Node {node['id']}", span("leader", class_="tag") if node["id"] == quorum["leader"] else None
            ),
            kind,
            number(node["endOffset"] if node["endOffset"] >= 0 else None),
            number(node["lag"]),
        )
        for kind, nodes in (("voter", quorum["voters"]), ("observer", quorum["observers"]))
        for node in nodes
    ]
    return together(
        p(f"Epoch {quorum['epoch']}, committed up to {number(quorum['highWatermark'])}.", class_="quiet"),
        data_table(
            ("Node", "Role", Column("End of its log", numeric=True), Column("Behind", numeric=True)),
            rows,
            caption="Nodes of the quorum",
        ),
    )


def _facts(cluster: Cluster, found: dict[str, Any]) -> Html:
    features = ", ".join(f"{name} {level}" for name, level in sorted(found["features"].items()))
    return dl(
        dt("Id"),
        dd(code(found["clusterId"] or "–")),
        dt("Asked at"),
        dd(code(cluster.settings.bootstrap)),
        dt("Features"),
        dd(features or "–"),
        class_="facts",
    )


@page("/brokers/{broker}")
async def broker_page(cluster: Cluster, asked: api.OneBroker) -> View:
    found = await api.broker(cluster, asked)
    directories = [
        (code(each["path"]), size(each["totalBytes"]), size(each["usableBytes"]), each["error"] or "–")
        for each in found["directories"]
    ]
    columns = ("Directory", Column("Volume", numeric=True), Column("Free", numeric=True), "Error")
    body = together(
        h1(f"Broker {found['id']}"),
        p(code(f"{found['host']}:{found['port']}"), f" · rack {found['rack'] or '–'}"),
        section(h2("Directories"), data_table(columns, directories, caption="Directories")),
        section(h2("Settings"), settings_section(cluster, found["settings"], ("brokers", str(found["id"])))),
    )
    return View(f"Broker {found['id']}", body, "overview")


PAGES = (overview_page, broker_page)
