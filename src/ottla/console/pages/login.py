"""Where one logs in to a cluster that wants to know who looks."""

from __future__ import annotations

from ottla.console.clusters import ClusterSettings
from ottla.console.html import button, div, form, h1, input_, label, option, output, p, select, span, together
from ottla.console.pages.page import View
from ottla.console.sessions import MECHANISMS


def login_view(settings: ClusterSettings, onwards: str) -> View:
    known = settings.properties.get("sasl.mechanism", MECHANISMS[0]).upper()
    body = together(
        h1(f"Log in to {settings.name}"),
        p("With a user of the cluster. Its brokers decide what you may see and do.", class_="quiet"),
        form(
            input_(type="hidden", name="cluster", value=settings.name, data_kind="text"),
            input_(type="hidden", name="onwards", value=onwards, data_kind="text"),
            label(
                span("User"),
                input_(type="text", name="user", required=True, data_kind="text", autocomplete="username"),
            ),
            label(
                span("Password"),
                input_(
                    type="password",
                    name="password",
                    required=True,
                    data_kind="text",
                    autocomplete="current-password",
                ),
            ),
            label(
                span("By"),
                select(
                    [option(each, value=each, selected=each == known) for each in MECHANISMS],
                    name="mechanism",
                    data_kind="text",
                ),
            ),
            div(button("Log in", type="submit"), class_="buttons"),
            output(class_="answer", aria_live="polite"),
            method="dialog",
            data_method="POST",
            data_action="/api/login",
            data_then="to",
            class_="api login",
        ),
    )
    return View(f"Log in to {settings.name}", body)
