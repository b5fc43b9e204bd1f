"""Access rules, users, quotas and tokens: a table each, with a form to add and a button to remove."""

from __future__ import annotations

from ottla.console.api import access as api
from ottla.console.clusters import Cluster
from ottla.console.html import Child, Html, code, div, h1, span, together
from ottla.console.moments import moment_ms
from ottla.console.pages.page import View, page
from ottla.console.pages.parts import (
    Column,
    Input,
    api_form,
    api_path,
    data_table,
    dialog_with,
    moment,
    number,
    opens,
    removal,
    removal_dialog,
    search_form,
)
from ottla.wire.acls import AclResource, Operation

_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


@page("/acls")
async def acls_page(cluster: Cluster, asked: api.FindRules) -> View:
    rules = (await api.find_rules(cluster, asked))["rules"]
    rows = [
        (
            code(rule["principal"]),
            span(rule["permission"], class_="tag bad" if rule["permission"] == "DENY" else "tag good"),
            rule["operation"],
            f"{rule['resource']} ",
            together(
                code(rule["name"]), span("prefix", class_="tag") if rule["pattern"] == "PREFIXED" else None
            ),
            rule["host"],
            removal(cluster, "DELETE", ("acls",), rule, rule["principal"]),
        )
        for rule in rules
    ]
    columns = ("Who", "May", "Operation", "On", "Name", "From", "")
    inputs = (
        Input(
            "principal", "Who", value="User:", required=True, hint="such as User:alice; User:* for anybody"
        ),
        Input("permission", "Is it", choices=("ALLOW", "DENY")),
        Input("operation", "To", choices=[each.name for each in Operation if each.value > 1], value="READ"),
        Input("resource", "On", choices=[each.name for each in AclResource if each.value > 1]),
        Input("name", "Called", required=True, hint="* for all; of the cluster kafka-cluster"),
        Input("pattern", "The name is", choices=("LITERAL", "PREFIXED")),
        Input("host", "From", value="*", hint="an address, or * for any"),
    )
    found: Child = data_table(
        columns,
        rows,
        caption="Access rules",
        empty="There are no rules: no authorizer, or everybody is super.",
    )
    search = search_form(asked.q, "Find a principal or a resource")
    removing = removal_dialog("Remove the rule", "Who it is about may then do what the other rules say.")
    return _view(
        cluster, "Access rules", "acls", search, found, "Add a rule", "POST", ("acls",), inputs, removing
    )


@page("/users")
async def users_page(cluster: Cluster, asked: api.Nothing) -> View:
    users = (await api.find_users(cluster, asked))["users"]
    rows = [
        (
            code(user["user"]),
            user["mechanism"],
            number(user["iterations"]),
            removal(
                cluster, "DELETE", ("users", user["user"]), {"mechanism": user["mechanism"]}, user["user"]
            ),
        )
        for user in users
    ]
    columns = ("User", "Logs in by", Column("Iterations", numeric=True), "")
    inputs = (
        Input("user", "User", required=True),
        Input("password", "Password", required=True, secret=True, hint="hashed before it leaves the console"),
        Input("mechanism", "Logs in by", choices=("SCRAM-SHA-512", "SCRAM-SHA-256")),
        Input("iterations", "Iterations", "int", value="4096"),
    )
    removing = removal_dialog("Remove the user", "Nobody logs in by this name and mechanism any more.")
    found = data_table(columns, rows, caption="Users", empty="No user has credentials for SCRAM.")
    return _view(
        cluster,
        "Users",
        "users",
        None,
        found,
        "Add or change a user",
        "PUT",
        ("users", "{user}"),
        inputs,
        removing,
    )


@page("/quotas")
async def quotas_page(cluster: Cluster, asked: api.Nothing) -> View:
    quotas = (await api.find_quotas(cluster, asked))["quotas"]

    def named(name: str | None) -> Child:
        return "–" if name is None else code(name) if name else span("default", class_="tag")

    rows = [
        (
            named(quota["user"]),
            named(quota["client_id"]),
            named(quota["ip"]),
            code(quota["quota"]),
            number(quota["value"]),
            removal(
                cluster,
                "DELETE",
                ("quotas",),
                {key: value for key, value in quota.items() if key != "value"},
                quota["quota"],
            ),
        )
        for quota in quotas
    ]
    columns = ("User", "Client", "Address", "Quota", Column("Limit", numeric=True), "")
    inputs = (
        Input("quota", "Quota", choices=_QUOTAS),
        Input("value", "Limit", "number", required=True, hint="bytes or requests per second, or percent"),
        Input("user", "User", hint="empty: not by user"),
        Input("client_id", "Client", hint="empty: not by client"),
        Input("ip", "Address", hint="empty: not by address"),
    )
    removing = removal_dialog("Remove the quota", "The next one that fits holds, or none.")
    found = data_table(columns, rows, caption="Quotas", empty="Nobody is limited.")
    return _view(
        cluster, "Quotas", "quotas", None, found, "Add a quota", "PUT", ("quotas",), inputs, removing
    )


@page("/tokens")
async def tokens_page(cluster: Cluster, asked: api.Nothing) -> View:
    tokens = (await api.find_tokens(cluster, asked))["tokens"]
    rows = [
        (
            code(token["id"]),
            token["owner"],
            ", ".join(token["renewers"]) or "–",
            moment(moment_ms(token["issued"])),
            moment(moment_ms(token["expires"])),
            None if cluster.read_only else _renew(cluster, token["hmac"]),
            removal(cluster, "POST", ("tokens", "expire"), {"hmac": token["hmac"]}, token["id"], "End"),
        )
        for token in tokens
    ]
    columns = ("Token", "Owner", "Renewers", "Issued", "Expires", "", "")
    inputs = (
        Input("owner", "Owner", hint="such as User:alice; empty: whoever the console logs in as"),
        Input("renewers", "Who may renew it", "list", hint="such as User:bob,User:carol"),
        Input("life_ms", "Longest life, in ms", "int", value="-1", hint="-1: as long as the cluster allows"),
    )
    removing = removal_dialog("End the token", "Whoever logs in by it is refused from now on.")
    found = data_table(columns, rows, caption="Tokens", empty="There are no tokens.")
    return _view(
        cluster,
        "Tokens",
        "tokens",
        None,
        found,
        "Create a token",
        "POST",
        ("tokens",),
        inputs,
        removing,
        then="show",
    )


PAGES = (acls_page, users_page, quotas_page, tokens_page)


def _view(
    cluster: Cluster,
    title: str,
    section: str,
    search: Child,
    found: Child,
    add: str,
    method: str,
    place: tuple[str, ...],
    inputs: tuple[Input, ...],
    removing: Html,
    *,
    then: str = "reload",
) -> View:
    dialogs: Child = None
    if not cluster.read_only:
        adding = dialog_with("add", add, api_form(method, _action(cluster, place), inputs, add, then=then))
        dialogs = together(adding, removing)
    body = together(
        div(h1(title), None if cluster.read_only else opens("add", add), class_="title"),
        search,
        div(found, id="results"),
        dialogs,
    )
    return View(title, body, section)


def _renew(cluster: Cluster, hmac: str) -> Html:
    return api_form(
        "POST",
        api_path(cluster, "tokens", "renew"),
        [Input("hmac", "", value=hmac, hidden=True)],
        "Renew",
        inline=True,
    )


def _action(cluster: Cluster, place: tuple[str, ...]) -> str:
    """`{name}` stands for a field of the form, as in the API."""
    return api_path(cluster, *place).replace("%7B", "{").replace("%7D", "}")
