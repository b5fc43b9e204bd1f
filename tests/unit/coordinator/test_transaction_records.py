"""The records of `__transaction_state`: Kafka's bytes, round trips, what is not understood."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.transactions.records import decode, encode
from ottla.coordinator.transactions.states import State
from ottla.coordinator.transactions.transaction import Transaction
from ottla.log.types import TopicPartition

I64 = st.integers(-1, 2**63 - 1)
I16 = st.integers(-1, 2**15 - 1)
STORED_STATES = [state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]

PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "__consumer_offsets"]), st.integers(0, 9))
)
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=I64,
    epoch=I16,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in STORED_STATES if state is not State.EMPTY]),
    updated_ms=I64,
    started_ms=I64,
    partitions=PARTITIONS,
    previous_producer_id=I64,
    next_producer_id=I64,
    client_version=st.integers(0, 2),
)

ONGOING = Transaction(
    producer_id=1000,
    epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    updated_ms=0x0102,
    started_ms=0x0101,
    partitions=frozenset((TopicPartition("t", 1), TopicPartition("t", 0))),
    previous_producer_id=999,
    client_version=2,
)
KEY = b"\x00\x00\x00\x02tx"


@given(transactional_id=st.text(max_size=50), transaction=TRANSACTIONS)
def test_what_is_stored_comes_back(transactional_id: str, transaction: Transaction) -> None:
    assert decode(*encode(transactional_id, transaction, 2)) == (transactional_id, transaction)
    assert decode(*encode(transactional_id, None, 2)) == (transactional_id, None)


@given(transaction=TRANSACTIONS)
def test_old_records_have_no_room_for_some(transaction: Transaction) -> None:
    _, found = decode(*encode("tx", transaction, 0))
    assert found == replace(transaction, previous_producer_id=-1, next_producer_id=-1, client_version=0)


def test_the_bytes_are_those_of_kafka() -> None:
    assert encode("tx", ONGOING, 0) == (
        KEY,
        b"\x00\x00"
        + (1000).to_bytes(8, "big")
        + b"\x00\x03\x00\x00\xea\x60\x01"
        + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
        + (0x0102).to_bytes(8, "big")
        + (0x0101).to_bytes(8, "big"),
    )
    assert encode("tx", ONGOING, 2) == (
        KEY,
        b"\x00\x01"
        + (1000).to_bytes(8, "big")
        + b"\x00\x03\x00\x00\xea\x60\x01"
        + b"\x02\x02t\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00"
        + (0x0102).to_bytes(8, "big")
        + (0x0101).to_bytes(8, "big")
        + b"\x02\x00\x08"
        + (999).to_bytes(8, "big")
        + b"\x02\x02\x00\x02",
    )


def test_an_id_without_a_transaction_has_no_list_of_partitions() -> None:
    empty = replace(ONGOING, state=State.EMPTY, partitions=frozenset())
    _, value = encode("tx", empty, 0)
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert decode(KEY, value)[1] == replace(empty, previous_producer_id=-1, client_version=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\x00", None),
        (b"\x00\x01\x00\x02tx", None),
        (KEY, b"\x00\x02"),
        (KEY, b"\x00"),
        (KEY, b"\x00\x01\x00"),
        (b"\x00\x00\x00\x09tx", None),
    ],
)
def test_what_is_not_understood(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, value)


def test_a_state_of_the_future_is_not_understood() -> None:
    key, value = encode("tx", ONGOING, 0)
    assert value is not None
    with pytest.raises(UnknownRecord):
        decode(key, value[:16] + b"\x63" + value[17:])
