"""What the REST API says of itself is what it serves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from starlette.testclient import TestClient

from ottla.connect.herder import Herder
from ottla.connect.rest.app import connect_app
from ottla.connect.rest.openapi import DOCUMENT, OPERATIONS, PAGE, described


def served() -> Any:
    foreman = SimpleNamespace(on_logger=None)
    herder = SimpleNamespace(settings={"access.control.allow.origin": ""}, foreman=foreman)
    return connect_app(cast(Herder, herder), lambda: None, lambda: "localhost:1")


def test_every_route_is_described_and_nothing_else() -> None:
    client = TestClient(served())
    routes = cast(Any, client.app)._app.routes
    assert {(method, route.path) for route in routes for method in route.methods - {"HEAD"}} == {*OPERATIONS}


def test_page_and_document_tell_the_same() -> None:
    client = TestClient(served())
    page, document = client.get(PAGE), client.get(DOCUMENT)
    assert page.headers["content-type"].startswith("text/html")
    assert document.json() == json.loads(json.dumps(described()))
    for path, operations in document.json()["paths"].items():
        assert f"<code>{path}</code>" in page.text
        for operation in operations.values():
            assert operation["summary"].replace("'", "&#x27;") in page.text
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
