"""What a cluster client is told before it connects: addresses and time-outs; and how errors read."""

from __future__ import annotations

import pytest

from ottla.client.connections import parse_addresses
from ottla.client.errors import error_for, raise_for_code
from ottla.client.timeouts import timeouts_from_properties
from ottla.wire.errors import ErrorCode, UnknownTopicOrPartition


def test_addresses() -> None:
    assert parse_addresses("a:1, [::1]:2,PLAINTEXT://b:3,") == [("a", 1), ("::1", 2), ("b", 3)]
    assert parse_addresses(["a", "[::1]"]) == [("a", 9092), ("::1", 9092)]
    for text in ("a:", ":1", "a:99999", "a:x"):
        with pytest.raises(ValueError, match="is not host:port"):
            parse_addresses(text)
    with pytest.raises(ValueError, match="'a' is not host:port"):
        parse_addresses("a", default_port=None)
    with pytest.raises(ValueError, match="is empty"):
        parse_addresses(" , ")


def test_one_attempt_does_not_outlast_all() -> None:
    assert timeouts_from_properties({}).request_ms == 30_000
    short = timeouts_from_properties({"default.api.timeout.ms": " 5000 "})
    assert (short.api_s, short.request_s, short.request_ms) == (5.0, 5.0, 5000)
    with pytest.raises(ValueError, match="=1s: must be a whole number"):
        timeouts_from_properties({"retry.backoff.ms": "1s"})


def test_an_error_of_an_answer_has_its_parts_and_a_text_of_its_own() -> None:
    error = error_for(ErrorCode.unknown_topic_or_partition, None, "offset of a-0")
    assert isinstance(error, UnknownTopicOrPartition)
    assert (str(error), error.message) == ("offset of a-0: UNKNOWN_TOPIC_OR_PARTITION", "")
    raise_for_code(ErrorCode.none, "fine", "anything")
    with pytest.raises(UnknownTopicOrPartition) as raised:
        raise_for_code(ErrorCode.unknown_topic_or_partition, "gone", "a-0")
    assert (raised.value.about, raised.value.message) == ("a-0", "gone")
    assert str(raised.value) == "a-0: UNKNOWN_TOPIC_OR_PARTITION: gone"
