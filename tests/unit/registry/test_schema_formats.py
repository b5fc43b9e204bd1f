from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.registry.compatibility_cases import CASES, Case

from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import incompatibilities, parse
from ottla.registry.schema import Schema, Version


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_may_follow_a_schema(case: Case) -> None:
    old, new = parse(case.kind, case.old), parse(case.kind, case.new)
    assert (not new.unreadable(old)) == case.backward, new.unreadable(old)
    assert (not old.unreadable(new)) == case.forward, old.unreadable(new)


# Of Protobuf one schema with everything in it has to do: each text takes a run of protoc.
@pytest.mark.parametrize("case", [case for case in CASES if case.kind != "PROTOBUF"], ids=str)
def test_the_canonical_text_is_the_same_schema_and_stays_as_it_is(case: Case) -> None:
    for text in (case.old, case.new):
        parsed = parse(case.kind, text)
        again = parse(case.kind, parsed.canonical)
        assert again.canonical == parsed.canonical
        assert again.normalized == parsed.normalized
        assert not again.unreadable(parsed)


def _levels(*texts: str) -> set[str]:
    """Under which levels the last of the schemas may follow the others."""
    *earlier, new = texts
    versions = [
        (Version("s", number, number, Schema("AVRO", text)), parse("AVRO", text))
        for number, text in enumerate(earlier, 1)
    ]
    levels = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE")
    return {level for level in levels if not incompatibilities(level, "AVRO", parse("AVRO", new), versions)}


def test_transitive_levels_look_further_back_than_the_last_version() -> None:
    def record(*fields: str) -> str:
        return f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'

    first = record('{"name":"a","type":"string"}')
    second = record('{"name":"a","type":"string"}', '{"name":"b","type":"int","default":1}')
    third = record('{"name":"a","type":"string"}', '{"name":"b","type":"int"}')
    assert _levels(first, second, third) == {"NONE", "BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE"}
    assert _levels(first, third) == {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}


def test_a_schema_of_another_format_follows_none() -> None:
    version = Version("s", 1, 1, Schema("AVRO", '"string"'))
    new = parse("JSON", "{}")
    assert incompatibilities("FULL", "JSON", new, [(version, parse("AVRO", '"string"'))])[0].endswith(
        "different schema type"
    )


def test_avro_is_written_as_java_writes_it() -> None:
    text = """{"namespace": "shop", "name": "Order", "doc": "an order", "type": "record", "owner": "us",
        "aliases": ["Purchase"], "fields": [
            {"default": null, "type": ["null", {"type": "string"}], "name": "id", "order": "ascending"},
            {"name": "parent", "type": ["null", "shop.Order"], "doc": "of a part"},
            {"name": "at", "type": {"logicalType": "timestamp-millis", "type": "long"}},
            {"name": "kind", "type": {"name": "other.Kind", "type": "enum", "symbols": ["A"]}}]}"""
    assert parse("AVRO", text).canonical == (
        '{"type":"record","name":"Order","namespace":"shop","doc":"an order","fields":['
        '{"name":"id","type":["null","string"],"default":null},'
        '{"name":"parent","type":["null","Order"],"doc":"of a part"},'
        '{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},'
        '{"name":"kind","type":{"type":"enum","name":"Kind","namespace":"other","symbols":["A"]}}],'
        '"owner":"us","aliases":["Purchase"]}'
    )


def test_avro_of_a_reference_is_named_and_resolved_on_request() -> None:
    reference = ("shop.Id", '{"type":"fixed","name":"shop.Id","size":4}')
    text = '{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"Id"}]}'
    parsed = parse("AVRO", text, (reference,))
    assert '"type":"Id"' in parsed.canonical
    assert '"size":4' in parsed.formatted("resolved")


PROTO = """
// a comment
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "lines.proto";
option java_package = "com.shop";
message Order {
  reserved 20, 30 to 40; reserved "gone";
  string order_id = 1 [json_name = "ID"];
  optional int64 total = 2; repeated sint32 codes = 3 [packed = false, deprecated = true];
  map<string, Line> lines = 4;
  oneof payment { string card = 5; Cash cash = 6; }
  google.protobuf.Timestamp at = 7; lines.Line other = 8; Kind kind = 9;
  message Cash { uint32 cents = 1; } message Line {}
  enum Kind { option allow_alias = true; NONE = 0; ZERO = 0; SOME = 5 [deprecated = true]; }
}
service Orders { rpc Watch (Order) returns (stream Order); }
"""
LINES = 'syntax = "proto2"; package lines; message Line { required bytes b = 1 [default = "a\\001"]; }'


def test_protobuf_text_and_descriptor_are_one_schema() -> None:
    dependencies = (("lines.proto", LINES),)
    parsed = parse("PROTOBUF", PROTO, dependencies)
    serialized = parsed.formatted("serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [message.name for message in file.message_type] == ["Order"]
    assert parse("PROTOBUF", serialized, dependencies).canonical == parsed.canonical
    assert parse("PROTOBUF", parsed.canonical, dependencies).formatted("serialized") == serialized


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        ("AVRO", '{"type":"record"', "Invalid Avro schema"),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"Nobody"}]}', "Nobody"),
        ("AVRO", "[" * 3000 + "]" * 3000, "Invalid Avro schema"),
        ("JSON", '{"type": "nothing"}', "at #/type"),
        ("JSON", '{"$ref": "elsewhere.json"}', "elsewhere.json is referred to and is not there"),
        ("JSON", "[]", "neither an object nor"),
        ("JSON", '{"maximum": Infinity}', "Infinity is no JSON"),
        ("AVRO", '{"type": "fixed", "name": "F", "size": -1}', "the size of F is -1"),
        ("PROTOBUF", 'syntax = "proto3"; mesage M {}', "1:20"),
        ("PROTOBUF", 'syntax = "proto3"; import "nowhere.proto";', "nowhere.proto"),
        ("PROTOBUF", 'syntax = "proto3"; message M { string a = 1; string b = 1; }', "1"),
        ("XML", "<a/>", "Invalid schema type XML"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(kind: str, text: str, complaint: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(kind, text)
    assert caught.value.code == 42201
    assert complaint in caught.value.message


def test_an_import_cannot_leave_its_folder() -> None:
    with pytest.raises(InvalidSchema, match="no name for an import"):
        parse("PROTOBUF", 'syntax = "proto3";', (("../../evil.proto", 'syntax = "proto3";'),))


def _chain(length: int, last: str) -> str:
    """Records that each have two fields of the next."""
    inner: object = last
    for number in reversed(range(length)):
        again = last if number + 1 == length else f"R{number + 1}"
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": again}]
        inner = {"type": "record", "name": f"R{number}", "fields": fields}
    return json.dumps(inner)


def test_types_that_are_referred_to_often_are_compared_and_told_of_once() -> None:
    written, read = parse("AVRO", _chain(40, "string")), parse("AVRO", _chain(40, "int"))
    # Twice, for the innermost record has two fields of it.
    assert [text.count("TYPE_MISMATCH") for text in read.unreadable(written)] == [1, 1]
    shared = {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(40)}
    old, new = (
        parse("JSON", json.dumps({"$defs": {**shared, "d40": {"type": kind}}, "$ref": "#/$defs/d0"}))
        for kind in ("string", "integer")
    )
    assert len(new.unreadable(old)) == 1


def test_large_enumerations_are_compared_in_one_go() -> None:
    count = 50_000
    old, new = (parse("JSON", json.dumps({"enum": list(range(n, n + count))})) for n in (0, 1))
    (text,) = new.unreadable(old)
    assert "ENUM_ARRAY_CHANGED" in text and "0 is not allowed any more" in text
    nested = [parse("JSON", json.dumps({"enum": rows})) for rows in ([[1], {"a": 1}, 2], [2, [1]])]
    assert "ENUM_ARRAY_NARROWED" in nested[1].unreadable(nested[0])[0]
    assert not nested[0].unreadable(nested[1])


def test_what_would_take_too_long_to_compare_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.registry.formats.effort._PAIRS_MAX", 100)

    def union(prefix: str) -> str:
        return json.dumps([{"type": "record", "name": f"{prefix}{n}", "fields": []} for n in range(11)])

    def one_of(sign: int) -> str:
        return json.dumps({"oneOf": [{"const": sign * n} for n in range(1, 12)]})

    for kind, old, new in (("AVRO", union("A"), union("B")), ("JSON", one_of(1), one_of(-1))):
        with pytest.raises(InvalidSchema, match="more than 100 pairs of types would have to be compared"):
            parse(kind, new).unreadable(parse(kind, old))


_NUMBERS = st.sampled_from(["int", "long", "float", "double", "string", "bytes", "boolean", "null"])
_AVRO_TYPES = st.recursive(
    _NUMBERS,
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}),
        inner.map(lambda each: {"type": "map", "values": each}),
        st.lists(_NUMBERS, min_size=1, max_size=4, unique=True),
    ),
    max_leaves=6,
)


@given(_AVRO_TYPES, _AVRO_TYPES)
def test_a_union_with_the_old_type_always_reads_it(old: object, other: object) -> None:
    """And every schema reads itself."""
    written = parse("AVRO", json.dumps(old))
    assert not written.unreadable(written)
    if not isinstance(old, list) and isinstance(other, str) and old != other:
        assert not parse("AVRO", json.dumps([other, old])).unreadable(written)
