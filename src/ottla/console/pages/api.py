"""The OpenAPI document, to be read by people."""

from __future__ import annotations

from typing import Any

from ottla.console.html import Html, a, code, details, h1, h2, p, section, span, summary, together
from ottla.console.pages.page import View
from ottla.console.pages.parts import data_table


def api_view(document: dict[str, Any]) -> View:
    families: dict[str, list[Html]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            families.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    body = together(
        h1("API"),
        p(document["info"]["description"]),
        p("For programs: ", a("openapi.json", href="/api/openapi.json"), "."),
        [section(h2(family), shown) for family, shown in families.items()],
    )
    return View("API", body)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Html:
    rows = [
        (code(each["name"]), each["in"], _kind(each["schema"]), each.get("description", ""))
        for each in operation["parameters"]
    ]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    rows += [
        (code(name), "body", _kind(schema), schema.get("description", ""))
        for name, schema in content.get("schema", {}).get("properties", {}).items()
    ]
    return details(
        summary(
            span(method.upper(), class_=f"method {method}"),
            code(path),
            span(operation["summary"], class_="quiet"),
        ),
        data_table(("Name", "In", "Kind", "Meaning"), rows, caption="Parameters"),
        class_="operation",
    )


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
