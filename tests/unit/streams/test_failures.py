"""Records that cannot be read, worked on or written: the record is named, the policy decides."""

from __future__ import annotations

import logging

import pytest

from ottla.streams import (
    Consumed,
    ErrorHandlers,
    ErrorKind,
    FailedRecord,
    Produced,
    RecordError,
    StreamsBuilder,
    StreamsError,
    TopologyError,
)
from ottla.streams.testing import TopologyTestDriver


def inverses() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(str, int)).flat_map_values(lambda value: [value, value - 1])
    stream.map_values(lambda value: 100 // value, named="invert").to("out", Produced.with_(str, int))
    return builder


def test_by_default_the_first_error_stops_and_names_the_record() -> None:
    with TopologyTestDriver(inverses().build()) as driver:
        topic = driver.create_input_topic("in", str, int)
        topic.pipe_input("a", 10)
        with pytest.raises(RecordError) as caught:
            topic.pipe_input("b", 1)
    assert str(caught.value) == (
        "invert failed on the record at topic in, partition 0, offset 1, key 'b': "
        "ZeroDivisionError: integer division or modulo by zero"
    )
    assert (caught.value.node, caught.value.topic, caught.value.offset) == ("invert", "in", 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_skip_leaves_out_only_what_failed_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(inverses().build(), on_error="skip") as driver, caplog.at_level(logging.WARNING):
        driver.create_input_topic("in", str, int).pipe_records([("b", 1), ("c", 5)])
        assert driver.create_output_topic("out", str, int).read_values() == [100, 20, 25]
    assert "Skipped: invert failed on the record at topic in, partition 0, offset 0" in caplog.text


def test_dead_letters_carry_the_record_and_what_happened() -> None:
    with TopologyTestDriver(inverses().build(), on_error="dead-letter", dead_letter_topic="dead") as driver:
        driver.create_input_topic("in", str, int).pipe_input("b", 1, 77)
        record = driver.create_output_topic("dead", str, int).read_record()
    headers = dict(record.headers)
    assert (record.key, record.value, record.timestamp_ms) == ("b", 1, 77)
    assert headers["__streams.errors.exception"] == b"ZeroDivisionError"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.partition"] == b"0"
    assert headers["__streams.errors.offset"] == b"0"
    assert b"integer division" in (headers["__streams.errors.stacktrace"] or b"")


def test_a_poison_record_is_named_with_its_place_and_bytes() -> None:
    with TopologyTestDriver(inverses().build()) as driver:
        topic = driver.create_input_topic("in", str, int)
        topic.pipe_input("a", 50)
        with pytest.raises(
            RecordError, match=r"partition 0, offset 1, key 'k': SerdeError: b'junk' is not long"
        ):
            topic.pipe_bytes(b"k", b"junk")


def test_a_record_of_a_global_table_is_skipped_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", Consumed.with_(str, int))
    builder.stream("in").left_join(rates, lambda a, b: f"{a}*{b}", key_selector=lambda value: value).to("out")
    with (
        TopologyTestDriver(builder.build(), on_error="dead-letter", dead_letter_topic="dead") as driver,
        caplog.at_level(logging.WARNING, "ottla.streams"),
    ):
        driver.create_input_topic("rates").pipe_bytes(b"a", b"junk")
        driver.create_input_topic("in").pipe_input("k", "a")
        assert driver.create_output_topic("out").read_values() == ["a*None"]
        assert driver.produced_topics == []
    assert "Skipped: " in caplog.text
    assert "Sent to dead" not in caplog.text


def test_a_value_the_sink_cannot_write_is_named_too() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(len).to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(RecordError, match="cannot be written as string"),
    ):
        driver.create_input_topic("in").pipe_input("k", "four")


def test_a_record_without_a_time_is_refused_unless_an_extractor_gives_one() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(RecordError, match="its timestamp is -1"),
    ):
        driver.create_input_topic("in").pipe_input("k", "v", -1)
    builder = StreamsBuilder()
    consumed = Consumed().with_timestamp_extractor(lambda record, value: int(value))
    builder.stream("in", consumed).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", "42", -1)
        assert driver.create_output_topic("out").read_record().timestamp_ms == 42


def test_each_kind_of_error_has_its_handler_and_a_handler_sees_the_record() -> None:
    seen: list[FailedRecord] = []

    def decide(failed: FailedRecord) -> str:
        seen.append(failed)
        return "dead-letter" if failed.key == "b" else "skip"

    builder = inverses()
    builder.stream("words").map_values(len, named="length").to("out")
    handlers = ErrorHandlers(deserialize="skip", process=decide, produce=decide)
    with TopologyTestDriver(builder.build(), on_error=handlers, dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in", str, int)
        topic.pipe_bytes(b"k", b"junk")
        topic.pipe_records([("a", 0), ("b", 0), ("c", 2)])
        driver.create_input_topic("words").pipe_input("w", "four")
        assert driver.create_output_topic("out", str, int).read_values() == [-100, -100, 50, 100]
        assert driver.create_output_topic("dead", str, int).read_key_values() == [("b", 0)]
    assert [(each.kind, each.node, each.key, each.record.offset) for each in seen] == [
        (ErrorKind.PROCESS, "invert", "a", 1),
        (ErrorKind.PROCESS, "invert", "b", 2),
        (ErrorKind.PRODUCE, "KSTREAM-SINK-0000000006", "w", 0),
    ]
    assert isinstance(seen[0].error, ZeroDivisionError)


def test_a_handler_that_asks_for_what_is_not_there_fails_loudly() -> None:
    for chosen, text in (
        ("dead-letter", "no dead_letter_topic is given"),
        ("ignore", "choose one of 'fail'"),
    ):
        handlers = ErrorHandlers(process=lambda failed, chosen=chosen: chosen)  # type: ignore[misc]
        with (
            TopologyTestDriver(inverses().build(), on_error=handlers) as driver,
            pytest.raises(StreamsError, match=text),
        ):
            driver.create_input_topic("in", str, int).pipe_input("a", 0)


@pytest.mark.parametrize(
    ("on_error", "topic", "text"),
    [
        ("dead-letter", None, "a dead-letter topic is needed"),
        ("skip", "dead", "a dead-letter topic is needed for, and only for"),
        ("ignore", None, "choose one of 'fail', 'skip', 'dead-letter'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(on_error: str, topic: str | None, text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        TopologyTestDriver(inverses().build(), on_error=on_error, dead_letter_topic=topic)
