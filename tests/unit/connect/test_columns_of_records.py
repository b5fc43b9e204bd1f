"""Columns and the records they stand for: the same bytes either way."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.chain import Chain, chain_of
from ottla.connect.columns import Fields, Flat, Same, Single, SourceColumns
from ottla.connect.connectors.lines import as_lines, lines_of
from ottla.connect.connectors.postgres.catalog import TypeInfo
from ottla.connect.connectors.postgres.columns import Modes, mapped
from ottla.connect.connectors.postgres.rows import rows_of, texts_of
from ottla.connect.connectors.postgres.snapshot import gathered
from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.simple import ByteArrayConverter, LongConverter, StringConverter
from ottla.connect.data import BOOLEAN, BYTES, INT32, INT64, STRING, decimal_of, struct_of
from ottla.connect.errors import DataError
from ottla.connect.plugins import installed

PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"\xc3", b"\xa9", "é€".encode(), b"\xff", b""])


def by_hand(data: bytes) -> tuple[list[str], list[int], bytes]:
    texts, ends, begin, at = [], [], 0, 0
    while at < len(data):
        if data[at : at + 2] == b"\r\n":
            width = 2
        elif data[at : at + 1] == b"\n" or (data[at : at + 1] == b"\r" and at + 1 < len(data)):
            width = 1
        else:
            at += 1
            continue
        texts.append(data[begin:at].decode(errors="replace"))
        at += width
        ends.append(at)
        begin = at
    return texts, ends, data[begin:]


@given(st.lists(PIECES, min_size=1, max_size=30).map(b"".join))
def test_lines_as_a_column_are_those_that_one_finds_by_hand(data: bytes) -> None:
    if data:
        found = lines_of(data)
        texts = [] if found.texts is None else found.texts.to_pylist()
        assert (texts, found.ends.tolist(), found.rest) == by_hand(data)


def test_texts_become_lines_with_null_as_a_word() -> None:
    assert bytes(as_lines(pa.array(["a", None, "", "b\nc"]))) == b"a\nnull\n\nb\nc\n"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROW = st.tuples(
    st.none() | TEXTS,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none() | st.decimals(-1000, 1000, places=2),
    st.none() | TEXTS,
)
STRUCT = struct_of(
    ("größe", STRING.but(optional=True)),
    ("n", INT64.but(optional=True)),
    ("is", BOOLEAN),
    ("price", decimal_of(2, optional=True)),
    ("with default", STRING.but(optional=True, default="d")),
    ("same", STRING),
    ("nothing", INT32.but(optional=True)),
)
KINDS = pa.string(), pa.int64(), pa.bool_(), None, pa.string()


def columns_of(rows: list[Any]) -> Fields:
    parts = zip(STRUCT.fields, zip(*rows, strict=True), KINDS, strict=False)
    found = [
        Single(field.schema, values) if kind is None else Flat(field.schema, pa.array(values, kind))
        for field, values, kind in parts
    ]
    same = Same(STRING, 'a "quoted" word', len(rows)), Same(INT32.but(optional=True), None, len(rows))
    return Fields(STRUCT, (*found, *same))


@pytest.mark.parametrize(
    "given_settings",
    [
        {},
        {"schemas.enable": "false"},
        {"schemas.enable": "false", "decimal.format": "NUMERIC", "replace.null.with.default": "false"},
    ],
)
@given(rows=st.lists(ROW, min_size=1, max_size=5))
def test_json_of_columns_is_that_of_each_value(given_settings: Mapping[str, str], rows: list[Any]) -> None:
    converter = JsonConverter({**given_settings, "converter.type": "value"})
    columns = columns_of(rows)
    expected = [converter.to_bytes("t", STRUCT, each) for each in columns.values()]
    assert converter.columns_to_bytes("t", columns).to_pylist() == expected
    first = columns.columns[0]
    texts = [converter.to_bytes("t", first.schema, each) for each in first.values()]
    assert converter.columns_to_bytes("t", first).to_pylist() == texts


def test_null_where_a_value_is_required_is_refused_either_way() -> None:
    converter = JsonConverter({"converter.type": "value"})
    with pytest.raises(DataError, match="null value for field that is required"):
        converter.columns_to_bytes("t", Flat(STRING, pa.array(["a", None])))


def test_simple_converters_take_columns_of_their_type_alone() -> None:
    text, data = Flat(STRING, pa.array(["a", None])), Flat(BYTES, pa.array([b"a", None]))
    given_settings = {"converter.type": "value"}
    assert StringConverter(given_settings).columns_to_bytes("t", text).to_pylist() == [b"a", None]
    assert StringConverter(given_settings).columns_to_bytes("t", data) is None
    assert ByteArrayConverter(given_settings).columns_to_bytes("t", data).to_pylist() == [b"a", None]
    assert ByteArrayConverter(given_settings).columns_to_bytes("t", text) is None
    assert LongConverter(given_settings).columns_to_bytes("t", text) is None
    latin = StringConverter({**given_settings, "converter.encoding": "latin-1"})
    assert latin.columns_to_bytes("t", text) is None
    assert latin.columns_from_bytes("t", data.array) is None
    read = StringConverter(given_settings).columns_from_bytes("t", data.array)
    assert read is not None
    assert read.values() == ["a", None]


def test_columns_stand_for_records() -> None:
    key, value = Flat(INT64, pa.array([1, 2])), columns_of([("a", 1, True, Decimal(1), "x")] * 2)
    first, second = SourceColumns("t", key, value, 5, {"p": 1}, {"o": 2}).records()
    assert (first.key, first.key_schema, first.value["n"], first.timestamp_ms) == (1, INT64, 1, 5)
    assert (second.key, second.value, second.source_offset) == (2, first.value, {"o": 2})


def test_rows_of_copy_keep_null_and_empty_apart() -> None:
    rows = rows_of([b'"1","a ""q"", \n\\N",\n', b'"2","","\\."\n'], 3)
    assert list(rows.every()) == [("1", 'a "q", \n\\N', None), ("2", "", "\\.")]
    assert list(rows_of([b"\n", b'""\n'], 1).every()) == [(None,), ("",)]
    assert list(rows_of([b"\n", b"\n"], 0).every()) == [(), ()]


MODES = Modes("precise", "adaptive", "bytes", "numeric", "json", 2, "?", False)
NAMED = {
    "int2": ["1", None, "-32768"],
    "int8": ["9223372036854775807", None],
    "bool": ["t", None, "f"],
    "text": ["a", None, ""],
    "jsonb": ['{"a": 1}', None],
    "timestamptz": ["2024-01-02 03:04:05.123+00", None, "1999-12-31 23:59:59+00"],
    "timestamp": ["2024-01-02 03:04:05.123", None],
    "numeric": ["1.5", None],
}
FAR = [
    "2024-01-02 03:04:05+00",
    "infinity",
    "-infinity",
    "0044-03-15 00:00:00+00 BC",
    "12024-01-02 00:00:00+00",
]


@pytest.mark.parametrize(("name", "texts"), [*NAMED.items(), ("timestamptz", FAR)])
def test_columns_of_a_table_are_read_as_its_rows_are(name: str, texts: list[str | None]) -> None:
    how = mapped(TypeInfo(1, name, "b", 0, 0, -1, ()), -1, MODES, lambda _: None)
    assert how is not None
    array = pa.array(texts, pa.string())
    expected = [None if text is None else how.read(text) for text in texts]
    assert how.column(how.schema.but(optional=True), array).values() == expected


def test_marks_are_text() -> None:
    assert texts_of(["first", "last"]).to_pylist() == ["first", "last"]


def chain_of_settings(*transforms: Mapping[str, str]) -> Chain:
    given_settings = {"transforms": ",".join(map(str, range(len(transforms))))}
    for number, each in enumerate(transforms):
        given_settings |= {f"transforms.{number}.{name}": value for name, value in each.items()}
    given_settings |= {
        "predicates": "p",
        "predicates.p.type": "TopicNameMatches",
        "predicates.p.pattern": "t",
    }
    return chain_of(installed(), given_settings)


def routed(to: str) -> dict[str, str]:
    return {"type": "RegexRouter", "regex": "(.)", "replacement": to}


@pytest.mark.parametrize(
    "transforms",
    [
        [routed("to-$1")],
        [routed("other"), {"type": "Filter", "predicate": "p"}],
        [{"type": "Filter", "predicate": "p"}],
        [{"type": "Filter", "predicate": "p", "negate": "true"}],
        [{"type": "HoistField$Value", "field": "in"}, {"type": "HoistField$Key", "field": "k"}],
        [{"type": "ExtractField$Value", "field": "n"}],
        [{"type": "HoistField$Value", "field": "in"}, {"type": "ExtractField$Value", "field": "in"}],
        [
            {"type": "HoistField$Value", "field": "in"},
            {"type": "ExtractField$Value", "field": "in.price", "field.syntax.version": "V2"},
        ],
    ],
)
def test_transforms_make_of_columns_what_they_make_of_records(transforms: list[Mapping[str, str]]) -> None:
    value = columns_of([("a", 1, True, Decimal("1.00"), "x"), (None, None, False, None, None)])
    given_columns = SourceColumns("t", Flat(INT64, pa.array([1, 2])), value, 5, None, None)
    chain = chain_of_settings(*transforms)
    changed = chain.apply_columns(given_columns)
    assert changed is not None
    expected = [chain.apply(record) for record in given_columns.records()]
    assert changed.records() == [record for record in expected if record is not None]


def test_what_transforms_cannot_do_with_columns_is_left_to_records() -> None:
    value = columns_of([("a", 1, True, Decimal("1.00"), "x")])
    given_columns = SourceColumns("t", None, value, 5, None, None)
    for each in (
        {"type": "HoistField$Key", "field": "k"},
        {"type": "ExtractField$Value", "field": "with default"},
        {"type": "ExtractField$Value", "field": "missing"},
        {"type": "MaskField$Value", "fields": "n"},
    ):
        assert chain_of_settings(each).apply_columns(given_columns) is None


def test_long_rows_are_read_few_at_a_time() -> None:
    short, long = b"1\n", b"x" * (6 << 20)
    sizes = [len(each) for each in gathered([short] * 5 + [long] * 7, lambda: 4)]
    assert sizes == [4, 4, 3, 1]
    assert list(gathered([], lambda: 4)) == []
