"""What connectors send to servers by HTTP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.connectors.http import HttpSinkTask
from ottla.connect.connectors.search import SearchSinkTask
from ottla.connect.records import SinkRecord


def sink_record(value: Any) -> SinkRecord:
    return SinkRecord(
        topic="t", partition=0, key="k", value=value, offset=5, original_topic="t", original_partition=0
    )


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SearchSinkTask, {"connection.url": "http://127.0.0.1:1"}),
        (HttpSinkTask, {"url": "http://127.0.0.1:1/x", "batch.size": "10"}),
    ],
)
def test_a_value_without_a_json_form_is_alone_with_its_fault(kind: Any, settings: dict[str, str]) -> None:
    reported: list[Any] = []
    bodies: list[bytes] = []
    task = kind()
    task.context = SimpleNamespace(report=lambda record, error: reported.append(record.value), wait=None)
    task.start(settings)

    def call(_: str, __: str, body: bytes, ___: Any) -> Any:
        bodies.append(body)
        return SimpleNamespace(is_fine=True, body=b"{}")

    task._caller = SimpleNamespace(call=call)
    poison: list[dict[Any, Any]] = [{"n": float("nan")}, {(1, 2): "no key of JSON"}]
    task.put([sink_record({"n": 1}), *map(sink_record, poison), sink_record({"n": 2})])
    assert reported == poison
    (body,) = bodies
    assert b'{"n":1}' in body
    assert b'{"n":2}' in body
