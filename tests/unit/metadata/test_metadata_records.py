"""Records of the metadata log: round trips, bytes as Apache Kafka writes them, clear errors for the rest."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import access_records, cluster_records, foreign_records, records
from ottla.metadata.cluster_records import (
    BrokerRegistrationChangeRecord,
)
from ottla.metadata.foreign_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from ottla.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    SupportedFeature,
    TopicRecord,
    decode_record,
    encode_record,
)

INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
UUIDS = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))


def values_of(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    text = str(hint)
    nested = getattr(hint, "__args__", (None,))[0]
    if dataclasses.is_dataclass(nested):
        return st.lists(entities(nested), max_size=3).map(tuple)  # type: ignore[arg-type]
    kafka_type = field.metadata["kafka_type"]
    single: st.SearchStrategy[Any]
    if kafka_type in INTEGERS:
        single = INTEGERS[kafka_type]
    elif kafka_type == "uuid":
        single = UUIDS | st.none() if "UUID | None" in text and "tuple" in text else UUIDS
    else:
        single = {
            "string": st.text(max_size=20),
            "bool": st.booleans(),
            "bytes": st.binary(max_size=20),
            "float64": st.floats(allow_nan=False),
        }[kafka_type]
    values = st.lists(single, max_size=4).map(tuple) if "tuple[" in text else single
    return values | st.none() if text.endswith("| None") else values


def entities(entity_type: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(entity_type)
    fields = dataclasses.fields(entity_type)
    return st.builds(entity_type, **{field.name: values_of(field, hints[field.name]) for field in fields})


ALL_TYPES = {
    **records.RECORD_TYPES,
    **cluster_records.CLUSTER_TYPES,
    **access_records.ACCESS_TYPES,
    **foreign_records.FOREIGN_TYPES,
}
any_record = st.one_of([entities(ALL_TYPES[api_key]) for api_key in sorted(ALL_TYPES)])


@given(record=any_record)
def test_every_record_survives_encoding(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(record=any_record, cut=st.integers(0, 200), junk=st.binary(min_size=1, max_size=4))
def test_a_damaged_value_is_an_error_and_nothing_else(record: MetadataRecord, cut: int, junk: bytes) -> None:
    value = encode_record(record)
    with pytest.raises(MetadataRecordError, match="bytes after its end"):
        decode_record(value + junk)
    if cut < len(value):
        with pytest.raises(MetadataRecordError):
            decode_record(value[:cut])


@given(value=st.binary(max_size=80))
def test_noise_never_escapes_as_another_error(value: bytes) -> None:
    try:
        record = decode_record(value)
    except MetadataRecordError:
        return
    assert isinstance(record, MetadataRecord)


TOPIC_ID = UUID("11223344-5566-4788-99aa-bbccddeeff00")
DIRECTORY = UUID("01020304-0506-4708-890a-0b0c0d0e0f10")

# As Apache Kafka 4.3's MetadataRecordSerde writes them.
KAFKAS_BYTES: list[tuple[MetadataRecord, str]] = [
    (
        FeatureLevelRecord(name="metadata.version", feature_level=27),
        "010c00116d657461646174612e76657273696f6e001b00",
    ),
    (
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        "010200076f7264657273112233445566478899aabbccddeeff0000",
    ),
    (
        PartitionRecord(
            partition_id=3,
            topic_id=TOPIC_ID,
            replicas=(1, 2),
            isr=(2,),
            leader=2,
            leader_recovery_state=1,
            leader_epoch=5,
            partition_epoch=6,
            directories=(DIRECTORY, None),
            eligible_leader_replicas=(1,),
        ),
        "01030200000003112233445566478899aabbccddeeff00030000000100000002020000000201010000000200000005"
        "00000006030102030405064708890a0b0c0d0e0f10000000000000000000000000000000000200010101050200000001",
    ),
    (
        PartitionChangeRecord(
            partition_id=3, topic_id=TOPIC_ID, isr=(1,), leader=1, directories=(DIRECTORY,)
        ),
        "01050200000003112233445566478899aabbccddeeff00030005020000000101040000000108110201020304050647"
        "08890a0b0c0d0e0f10",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        "01040002076f72646572730d726574656e74696f6e2e6d73053130303000",
    ),
    (ConfigRecord(resource_type=4, resource_name="", name="k", value=None), "0104000401026b0000"),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=TOPIC_ID,
            broker_epoch=9,
            end_points=(Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0),),
            features=(
                SupportedFeature(name="metadata.version", min_supported_version=23, max_supported_version=27),
            ),
            rack="r1",
            fenced=False,
            log_dirs=(DIRECTORY,),
        ),
        "0100030000000100112233445566478899aabbccddeeff000000000000000009020a504c41494e544558540a6c6f63"
        "616c686f7374238400000002116d657461646174612e76657273696f6e0017001b0003723100000100110201020304"
        "05064708890a0b0c0d0e0f10",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1, log_dirs=(DIRECTORY,)),
        "011102000000010000000000000009020001ff0211020102030405064708890a0b0c0d0e0f10",
    ),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=9, next_producer_id=2000),
        "010f0000000001000000000000000900000000000007d000",
    ),
    (RemoveTopicRecord(topic_id=TOPIC_ID), "010900112233445566478899aabbccddeeff0000"),
    (NoOpRecord(), "01140000"),
    (
        BeginTransactionRecord(name="Bootstrap records"),
        "01170001001212426f6f747374726170207265636f726473",
    ),
    (
        AbortTransactionRecord(reason="Controller failover"),
        "01190001001414436f6e74726f6c6c6572206661696c6f766572",
    ),
    (EndTransactionRecord(), "01180000"),
]


@pytest.mark.parametrize(("record", "hexadecimal"), KAFKAS_BYTES, ids=lambda value: type(value).__name__)
def test_bytes_are_apache_kafkas(record: MetadataRecord, hexadecimal: str) -> None:
    assert encode_record(record).hex() == hexadecimal
    assert decode_record(bytes.fromhex(hexadecimal)) == record


def test_an_older_version_is_read_where_only_tagged_fields_were_added() -> None:
    version_1 = bytes.fromhex(
        "010301 00000001 112233445566478899aabbccddeeff00 02 00000001 02 00000001 01 01 00000001"
        " 00000000 00000000 02 0102030405064708890a0b0c0d0e0f10 00"
    )
    assert decode_record(version_1) == PartitionRecord(
        partition_id=1,
        topic_id=TOPIC_ID,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(DIRECTORY,),
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x01\x63\x00\x00", r"unknown kind \(type 99\)"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x00\x09\x00", "RegisterBrokerRecord has version 9; this version reads 2 to 4"),
        (b"\x01\x03\x00\x00", "PartitionRecord has version 0; this version reads 1 to 2"),
        (b"\x01", "bad frame"),
        (b"", "bad frame"),
    ],
)
def test_what_cannot_be_read_is_named(value: bytes, words: str) -> None:
    with pytest.raises(MetadataRecordError, match=words):
        decode_record(value)
