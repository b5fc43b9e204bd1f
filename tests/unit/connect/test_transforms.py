"""The transforms of Kafka and their predicates, with schemas and without."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.chain import chain_of
from ottla.connect.data import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    Struct,
    array_of,
    decimal_of,
    struct_of,
)
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugins import installed
from ottla.connect.records import Header, SinkRecord, SourceRecord

PACKAGE = "org.apache.kafka.connect.transforms"
MOMENT = datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=UTC)
MOMENT_MS = 1709210096789
USER = struct_of(("id", INT64), ("name", STRING.but(optional=True)))


def user(**fields: Any) -> SinkRecord:
    return record(Struct(USER, {"id": 7, "name": "Ada", **fields}), USER)


def record(value: Any, schema: Schema | None = None, **more: Any) -> SinkRecord:
    fields: dict[str, Any] = {"topic": "t", "partition": 3, "timestamp_ms": MOMENT_MS, "offset": 42, **more}
    return SinkRecord(value=value, value_schema=schema, **fields)


def transformed(given: Any, kind: str, **settings: str) -> Any:
    """By one transform; settings have dots where the names here have two underscores."""
    config = {"transforms": "x", "transforms.x.type": kind}
    config |= {f"transforms.x.{name.replace('__', '.')}": value for name, value in settings.items()}
    return chain_of(installed(), config).apply(given)


def value(given: Any, kind: str, **settings: str) -> Any:
    found = transformed(given, kind, **settings).value
    return found.as_dict() if isinstance(found, Struct) else found


def test_insert_field() -> None:
    names = {"topic__field": "topic", "partition__field": "part", "offset__field": "at!"}
    names |= {"timestamp__field": "when", "static__field": "who", "static__value": "me"}
    assert value(record({"a": 1}), "InsertField$Value", **names) == {
        "a": 1,
        "topic": "t",
        "part": 3,
        "at": 42,
        "when": MOMENT_MS,
        "who": "me",
    }
    found = transformed(user(), "InsertField$Value", **names)
    assert found.value["when"] == MOMENT
    assert [
        (each.name, each.schema.kind, each.schema.optional) for each in found.value_schema.fields[2:]
    ] == [
        ("topic", Kind.STRING, True),
        ("part", Kind.INT32, True),
        ("at", Kind.INT64, False),
        ("when", Kind.INT64, True),
        ("who", Kind.STRING, True),
    ]
    assert transformed(record(None), "InsertField$Value", **names).value is None
    with pytest.raises(SettingError, match="No field insertion configured"):
        transformed(user(), "InsertField$Value")
    with pytest.raises(DataError, match="SinkRecord"):
        transformed(SourceRecord(topic="t", value={}), "InsertField$Value", offset__field="x")


def test_extract_field() -> None:
    found = transformed(user(), "ExtractField$Value", field="id")
    assert (found.value, found.value_schema) == (7, INT64)
    assert value(record({"a": {"b": 1}}), "ExtractField$Value", field="a.b") is None
    path = {"field": "a.`x.y`", "field__syntax__version": "V2"}
    assert value(record({"a": {"x.y": 1}}), "ExtractField$Value", **path) == 1
    with pytest.raises(DataError, match="Unknown field: none"):
        transformed(user(), "ExtractField$Value", field="none")
    assert transformed(record(1, key={"k": 2}), "ExtractField$Key", field="k").key == 2


def test_replace_field() -> None:
    assert value(user(), "ReplaceField$Value", exclude="id", renames="name:who") == {"who": "Ada"}
    assert value(record({"a": 1, "b": 2}), "ReplaceField$Value", include="a") == {"a": 1}
    with pytest.raises(SettingError, match="Invalid rename mapping: a"):
        transformed(user(), "ReplaceField$Value", renames="a")


def test_mask_field() -> None:
    assert value(user(), "MaskField$Value", fields="id,name") == {"id": 0, "name": ""}
    given = {"a": True, "b": 1.5, "c": [1], "d": MOMENT, "e": Decimal(3)}
    masked = value(record(given), "MaskField$Value", fields="a,b,c,d,e")
    assert masked == {"a": False, "b": 0.0, "c": [], "d": datetime(1970, 1, 1, tzinfo=UTC), "e": 0}
    assert value(user(), "MaskField$Value", fields="name", replacement="***")["name"] == "***"
    with pytest.raises(DataError, match="Unable to convert x to number"):
        transformed(user(), "MaskField$Value", fields="id", replacement="x")


def test_hoist_and_flatten() -> None:
    hoisted = transformed(user(), "HoistField$Value", field="user")
    assert hoisted.value["user"]["id"] == 7
    flat = transformed(hoisted, "Flatten$Value", delimiter="_")
    assert flat.value.as_dict() == {"user_id": 7, "user_name": "Ada"}
    assert [each.schema.optional for each in flat.value_schema.fields] == [False, True]
    assert value(record({"a": {"b": {"c": 1}}, "d": [1]}), "Flatten$Value") == {"a.b.c": 1, "d": [1]}


@pytest.mark.parametrize(
    ("kind", "given", "schema", "expected"),
    [
        ("int8", 300, INT32, 44),
        ("int16", "12", STRING, 12),
        ("int32", 1e12, FLOAT64, 2**31 - 1),
        ("int64", True, BOOLEAN, 1),
        ("int32", -1.9, FLOAT64, -1),
        ("float64", "1.5", STRING, 1.5),
        ("boolean", "TRUE", STRING, True),
        ("boolean", 0, INT32, False),
        ("string", 1.0, FLOAT64, "1.0"),
        ("string", True, BOOLEAN, "true"),
        ("string", b"\0\1", Schema(Kind.BYTES), "AAE="),
        ("int64", MOMENT, TIMESTAMP_SCHEMA, MOMENT_MS),
        ("string", MOMENT, TIMESTAMP_SCHEMA, "2024-02-29T12:34:56.789Z"),
        ("int32", Decimal("7.9"), decimal_of(1), 7),
    ],
)
def test_cast_of_the_whole(kind: str, given: Any, schema: Schema, expected: Any) -> None:
    found = transformed(record(given, schema), "Cast$Value", spec=kind)
    assert found.value == expected
    assert type(found.value) is type(expected)
    if schema.name is None:
        assert transformed(record(given), "Cast$Value", spec=kind).value == expected


def test_cast_of_fields() -> None:
    assert value(user(), "Cast$Value", spec="id:string") == {"id": "7", "name": "Ada"}
    with pytest.raises(DataError, match=r"Value \(300\) was out of range"):
        transformed(record({"a": "300"}), "Cast$Value", spec="a:int8")
    with pytest.raises(DataError, match="does not support casting from ARRAY"):
        transformed(record([1], array_of(INT32)), "Cast$Value", spec="string")
    for wrong in ("a:b", "a:bytes", "string,a:int8", ""):
        with pytest.raises(SettingError):
            transformed(user(), "Cast$Value", spec=wrong)


def test_value_to_key() -> None:
    found = transformed(user(), "ValueToKey", fields="id")
    assert (found.key.as_dict(), found.key_schema.field("id").schema) == ({"id": 7}, INT64)
    assert transformed(record({"a": 1, "b": 2}), "ValueToKey", fields="b").key == {"b": 2}
    with pytest.raises(DataError, match="Field does not exist: none"):
        transformed(user(), "ValueToKey", fields="none")


def test_set_schema_metadata() -> None:
    found = transformed(user(), "SetSchemaMetadata$Value", schema__name="user", schema__version="2")
    assert (found.value_schema.name, found.value_schema.version) == ("user", 2)
    assert found.value.schema is found.value_schema


@pytest.mark.parametrize(
    ("settings", "given", "expected"),
    [
        ({"target__type": "unix"}, MOMENT, MOMENT_MS),
        ({"target__type": "unix", "unix__precision": "seconds"}, MOMENT, MOMENT_MS // 1000),
        ({"target__type": "unix", "unix__precision": "nanoseconds"}, MOMENT, MOMENT_MS * 1_000_000),
        ({"target__type": "Timestamp"}, MOMENT_MS, MOMENT),
        ({"target__type": "Timestamp", "unix__precision": "microseconds"}, MOMENT_MS * 1000 + 1, MOMENT),
        ({"target__type": "Date"}, MOMENT_MS, date(2024, 2, 29)),
        ({"target__type": "Time"}, MOMENT_MS, time(12, 34, 56, 789000)),
        (
            {"target__type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSX"},
            MOMENT_MS,
            "2024-02-29T12:34:56.789Z",
        ),
        (
            {"target__type": "string", "format": "EEE, d MMM yy h:mm a z"},
            MOMENT_MS,
            "Thu, 29 Feb 24 12:34 PM UTC",
        ),
        ({"target__type": "unix", "format": "yyyyMMddHHmmssSSS"}, "20240229123456789", MOMENT_MS),
        (
            {"target__type": "unix", "format": "dd/MMM/yyyy HH:mm:ss Z"},
            "29/Feb/2024 13:34:56 +0100",
            MOMENT_MS - 789,
        ),
    ],
)
def test_timestamp_converter(settings: dict[str, str], given: Any, expected: Any) -> None:
    assert transformed(record(given), "TimestampConverter$Value", **settings).value == expected
    found = value(record({"at": given}), "TimestampConverter$Value", field="at", **settings)
    assert found == {"at": expected}


def test_timestamp_converter_says_what_is_wrong() -> None:
    settings = {"target__type": "unix", "format": "yyyy"}
    with pytest.raises(DataError, match=r"value \(x\) does not match pattern \(yyyy\)"):
        transformed(record("x"), "TimestampConverter$Value", **settings)
    with pytest.raises(SettingError, match="requires format"):
        transformed(record("x"), "TimestampConverter$Value", target__type="string")
    with pytest.raises(SettingError, match="Illegal pattern character 'j'"):
        transformed(record("x"), "TimestampConverter$Value", target__type="string", format="j")


def test_routers() -> None:
    pattern = {"regex": "(.*)-(?P<what>.*)", "replacement": "$2.$10\\$${what}"}
    assert transformed(record(1, topic="db-orders"), "RegexRouter", **pattern).topic == "orders.db0$orders"
    assert transformed(record(1), "RegexRouter", regex="x", replacement="y").topic == "t"
    assert transformed(record(1), "TimestampRouter").topic == "t-20240229"
    hourly = {"topic__format": "${timestamp}/${topic}", "timestamp__format": "yyyyMMdd.HH"}
    assert transformed(record(1), "TimestampRouter", **hourly).topic == "20240229.12/t"


def test_headers() -> None:
    found = transformed(record(1), "InsertHeader", header="h", value__literal="12")
    assert found.headers == (Header("h", Schema(Kind.INT8), 12),)
    assert transformed(found, "DropHeaders", headers="h,i").headers == ()
    moved = transformed(user(), "HeaderFrom$Value", fields="id", headers="user", operation="move")
    assert (moved.headers[0], moved.value.as_dict()) == (Header("user", INT64, 7), {"name": "Ada"})
    copied = transformed(record({"a": 1}), "HeaderFrom$Value", fields="a", headers="h", operation="copy")
    assert (copied.headers, copied.value) == ((Header("h", None, 1),), {"a": 1})


def test_predicates_choose_the_records_that_a_transform_sees() -> None:
    config = {
        "transforms": "drop,mark",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "dead",
        "transforms.mark.type": "InsertHeader",
        "transforms.mark.header": "seen",
        "transforms.mark.value.literal": "yes",
        "transforms.mark.predicate": "marked",
        "transforms.mark.negate": "true",
        "predicates": "dead,marked",
        "predicates.dead.type": "RecordIsTombstone",
        "predicates.marked.type": "HasHeaderKey",
        "predicates.marked.name": "seen",
    }
    chain = chain_of(installed(), config)
    assert chain.apply(record(None)) is None
    once = chain.apply(record(1))
    assert once is not None
    assert [header.key for header in once.headers] == ["seen"]
    assert chain.apply(once) == once
    by_topic = {
        "transforms": "drop",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "TopicNameMatches",
        "predicates.p.pattern": "t.*",
    }
    assert chain_of(installed(), by_topic).apply(record(1)) is None
    assert chain_of(installed(), by_topic).apply(record(1, topic="at")) is not None


def test_all_transforms_of_kafka_are_here_under_both_names() -> None:
    names = (
        "Cast DropHeaders ExtractField Filter Flatten HeaderFrom HoistField InsertField InsertHeader "
        "MaskField RegexRouter ReplaceField SetSchemaMetadata TimestampConverter TimestampRouter ValueToKey"
    )
    for name in names.split():
        forms = [name] if installed().find(name) else [f"{name}$Key", f"{name}$Value"]
        for form in forms:
            short, full = (
                installed().find(form),
                installed().find(f"org.apache.kafka.connect.transforms.{form}"),
            )
            assert short is not None
            assert short is full
            short.load()
