"""Parts of tools that need no broker: lines, settings, times, rules."""

from __future__ import annotations

import pytest

from ottla.cli.cluster.admin import check_addresses
from ottla.cli.cluster.lines import LineReader, LineRecord
from ottla.cli.cluster.name_patterns import matching
from ottla.cli.cluster.offset_reset import parse_datetime, parse_duration_ms
from ottla.cli.files.releases import level_of, level_text
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.properties import pairs
from ottla.client.librdkafka import translated


def test_lines_become_records() -> None:
    plain = LineReader({})
    assert list(plain.records(["a\tb\n", "\n"])) == [
        LineRecord(None, b"a\tb", []),
        LineRecord(None, b"", []),
    ]
    keyed = LineReader({"parse.key": "true", "key.separator": ":", "null.marker": "-"})
    assert list(keyed.records(["k:v:w\n", "-:-\n"])) == [
        LineRecord(b"k", b"v:w", []),
        LineRecord(None, None, []),
    ]
    lenient = LineReader({"parse.key": "true", "ignore.error": "true"})
    assert list(lenient.records(["whole line"])) == [LineRecord(None, b"whole line", [])]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
    ],
)
def test_separators_that_clash(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        LineReader(properties)


def test_settings_of_java_clients_are_translated() -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password='b';"
    assert translated(
        {
            "buffer.memory": "33554432",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
            "sasl.jaas.config": jaas,
            "acks": "all",
        }
    ) == {
        "queue.buffering.max.kbytes": "32768",
        "partition.assignment.strategy": "range",
        "sasl.username": "a",
        "sasl.password": "b",
        "acks": "all",
    }


def test_stores_of_java_clients_are_translated() -> None:
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.location": "me.pem",
        "ssl.keystore.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert translated(given) == {
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_addresses() -> None:
    check_addresses("a:1,[::1]:2,PLAINTEXT://b:3")
    for text in ("a", "a:", ":1", "a:99999", "a:x"):
        with pytest.raises(ToolError, match="must be host:port"):
            check_addresses(text)


def test_pairs() -> None:
    assert pairs("property", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ToolError, match="--property x: must be key=value"):
        pairs("property", ["x"])


def test_durations_and_dates() -> None:
    assert parse_duration_ms("P1DT2H3M4.5S") == ((26 * 60 + 3) * 60 + 4) * 1000 + 500
    assert parse_duration_ms("PT0S") == 0
    assert parse_datetime("1970-01-01T00:00:01.500") == 1500
    assert parse_datetime("1970-01-01T01:00:00.000+01:00") == 0
    for text in ("1H", "P", "PT", ""):
        with pytest.raises(ToolError):
            parse_duration_ms(text)
    with pytest.raises(ToolError):
        parse_datetime("yesterday")


def test_names_match_as_in_kafka() -> None:
    names = ["a", "ab", "b.c", "b_c"]
    assert matching(names, "a") == ["a"]
    assert matching(names, "a.*,b.c") == names
    with pytest.raises(ToolError, match="not a regular expression"):
        matching(names, "(")


def test_releases() -> None:
    assert level_of("4.1") == 27
    assert level_of("9.9") is None
    assert level_text("metadata.version", 27) == "4.1-IV1"
    assert level_text("group.version", 1) == "1"
