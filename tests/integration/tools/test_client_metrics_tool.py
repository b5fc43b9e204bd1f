"""`kafka-client-metrics` against a broker: what it sets is what the broker then asks of its clients."""

from __future__ import annotations

import re
from typing import Any

import pytest


def test_a_resource_comes_changes_and_goes(on: Any) -> None:
    altered = on(
        "client-metrics", "--alter", "--name", "writers", "--metrics", "org.apache.kafka.producer.,a.b",
        "--interval", "60000", "--match", "client_id=orders.*,client_software_name=librdkafka",
    )  # fmt: skip
    assert altered.out == "Altered client metrics config for writers.\n"
    assert "writers" in on("client-metrics", "--list").lines
    described = on("client-metrics", "--describe", "--name", "writers")
    assert described.lines[0] == "Client metrics configs for writers are:"
    assert set(described.lines[1:]) == {
        "  metrics=org.apache.kafka.producer.,a.b",
        "  interval.ms=60000",
        "  match=client_id=orders.*,client_software_name=librdkafka",
    }
    # An empty value takes a setting back and leaves the others.
    assert on("client-metrics", "--alter", "--name", "writers", "--interval", "").status == 0
    (data,) = on("client-metrics", "--describe", "--name", "writers", "--json").data
    assert data["configs"]["interval.ms"] == "300000"
    assert data["configs"]["metrics"] == "org.apache.kafka.producer.,a.b"
    assert on("client-metrics", "--delete", "--name", "writers").out == (
        "Deleted client metrics config for writers.\n"
    )
    assert "writers" not in on("client-metrics", "--list").lines
    assert on("client-metrics", "--describe", "--name", "writers").out == (
        "The client metric resource writers doesn't exist and doesn't have dynamic config.\n"
    )


def test_a_name_is_generated(on: Any) -> None:
    altered = on("client-metrics", "--alter", "--generate-name", "--metrics", "*")
    generated = re.fullmatch(r"Altered client metrics config for ([\w-]{22})\.\n", altered.out)
    assert generated is not None
    assert generated[1] in on("client-metrics", "--list").lines
    assert f"Client metrics configs for {generated[1]} are:" in on("client-metrics", "--describe").lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one action"),
        (("--list", "--describe"), "exactly one action"),
        (("--list", "--name", "a"), "--name cannot be used with --list"),
        (("--describe", "--interval", "1000"), "--interval cannot be used with --describe"),
        (("--delete",), "must be specified with --delete"),
        (("--alter", "--interval", "1000"), "One of --name or --generate-name"),
        (("--alter", "--name", "a", "--generate-name", "--interval", "1000"), "One of --name or"),
        (("--alter", "--name", "a", "--interval", "soon"), "--interval soon: must be a whole number"),
        (("--alter", "--name", "a"), "give --interval, --metrics or --match"),
        (("--alter", "--name", "a", "--interval", "1"), "interval.ms=1: must be between 100 and 3600000"),
        (("--alter", "--name", "a", "--match", "shoe_size=44"), "shoe_size"),
    ],
)
def test_what_cannot_be_done_is_said(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("client-metrics", *arguments)
    assert refused.status == 1
    assert message in refused.err
