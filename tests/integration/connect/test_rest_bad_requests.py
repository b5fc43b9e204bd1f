"""Names that are hard to write in an address, and requests that no worker may stumble over."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from worker_process import our_worker, settings_of

import ottla.testing

TOO_MANY_DIGITS = "9" * 6000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ottla.testing.broker() as broker, our_worker(settings_of(broker.bootstrap_servers)) as worker:
        yield worker.address


def answer(address: str, method: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection(address, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body)
    connection.request(method, path, data)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None, dict(response.getheaders())


def stopped(name: Any, directory: Path, **more: Any) -> dict[str, Any]:
    """Of a connector that is not run."""
    config = {"connector.class": "FileStreamSource", "file": str(directory / "in"), "topic": "t", **more}
    return {"name": name, "config": config, "initial_state": "STOPPED"}


@pytest.mark.parametrize("name", ["a/b", "日本", "a%2Fb", "a?b#c", "..", "with space"])
def test_a_connector_of_any_name_can_be_asked_for_and_removed(
    address: str, tmp_path: Path, name: str
) -> None:
    status, _, headers = answer(address, "POST", "/connectors", stopped(name, tmp_path))
    path = f"/connectors/{quote(name, safe='')}"
    assert (status, headers["location"]) == (201, f"http://{address}{path}")
    status, info, _ = answer(address, "GET", path)
    assert (status, info["name"]) == (200, name)
    assert answer(address, "DELETE", path)[0] == 204
    assert name not in answer(address, "GET", "/connectors")[1]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"connector.class":"FileStreamSource","x":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":' + TOO_MANY_DIGITS.encode() + b"}",
        b"",
    ],
    ids=["deep list", "deep object", "half a character", "no UTF-8", "many digits", "nothing"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/connectors/x/config"),
        ("POST", "/connectors"),
        ("PUT", "/connector-plugins/FileStreamSource/config/validate"),
    ],
)
def test_what_is_no_json_is_called_that_and_logged_nowhere(
    address: str, caplog: pytest.LogCaptureFixture, method: str, path: str, body: bytes
) -> None:
    with caplog.at_level(logging.ERROR):
        status, told, _ = answer(address, method, path, body)
    assert (status, told["error_code"]) == (500, 500)
    assert told["message"].startswith("the request is no JSON: ")
    assert not caplog.records


def test_no_more_is_read_than_a_configuration_can_be(address: str) -> None:
    status, told, _ = answer(address, "PUT", "/connectors/x/config", b" " * (17 << 20))
    assert (status, told["message"]) == (413, "the request is larger than 16777216 bytes")


def test_numbers_that_are_none_are_refused(address: str, tmp_path: Path) -> None:
    config = stopped("many", tmp_path, **{"tasks.max": TOO_MANY_DIGITS})
    status, told, _ = answer(address, "POST", "/connectors", config)
    assert status == 400
    assert "Not a number of type INT" in told["message"]
    assert answer(address, "GET", f"/connectors/x/tasks/{TOO_MANY_DIGITS}/status")[0] == 404
    assert answer(address, "POST", "/connectors/x/tasks/one/restart")[0] == 404


def test_a_name_is_a_string_and_so_is_every_value(address: str, tmp_path: Path) -> None:
    assert answer(address, "POST", "/connectors", stopped({"a": 1}, tmp_path))[0] == 500
    assert answer(address, "POST", "/connectors", stopped("text", tmp_path))[0] == 201
    changed = answer(address, "PATCH", "/connectors/text/config", {"batch.size": 5, "topic": "u"})[1]
    assert (changed["config"]["batch.size"], changed["config"]["topic"]) == ("5", "u")
    assert answer(address, "DELETE", "/connectors/text")[0] == 204
