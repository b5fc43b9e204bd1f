"""Every record of a batch looked at, as brokers of Apache Kafka do: what no header tells.

Nothing is made of the records on the way, and whoever asks is given back control every few thousand of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias

from ottla.records.batch import NO_TIMESTAMP
from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, CorruptRecords
from ottla.varints import VarintTooLong, read_uvarlong

RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp, offset, key, value and headers of a record take a byte each at least."""

# The most that a byte can inflate to, by what the formats allow. Deflate's longest match is 258 bytes in two
# bits. Snappy copies 64 bytes with three. LZ4 lengthens a match by 255 with each byte. The shortest block of
# zstd has four bytes, repeats one of them, and stands for 128 KiB.
_INFLATION_MAX = {NONE: 1, GZIP: 1032, SNAPPY: 22, LZ4: 255, ZSTD: 32 * 1024}

# Enough to find the mistake, few enough for an answer.
FAULTS_MAX = 32 * 1024

_RECORDS_PER_STEP = 2048


def may_hold(data_bytes: int, codec: int, count: int) -> bool:
    """Whether so many records can be in so many bytes, however well they are compressed."""
    return count * RECORD_BYTES_MIN <= data_bytes * _INFLATION_MAX[codec]


class Demands(NamedTuple):
    """What records must be like, apart from well-formed."""

    keys: bool
    oldest_ms: int
    newest_ms: int


Fault: TypeAlias = tuple[int, int | None]
"""The index of a record in its batch and its timestamp, which is out of range; None: it has no key."""


class Walked(NamedTuple):
    faults: list[Fault]
    """The first FAULTS_MAX of them."""
    fault_count: int
    max_timestamp: int


def walk(  # noqa: PLR0912, PLR0915 - a call per number would take longer than all the rest
    body: bytes, count: int, base_timestamp: int, demands: Demands
) -> Generator[int, None, Walked]:
    """Look at the `count` records of a batch, which are not compressed. Yields bytes passed.

    Raises CorruptRecords where they are not so many, not whole, or not numbered 0, 1, 2, …
    """
    faults: list[Fault] = []
    fault_count = 0
    size = len(body)
    at = start = index = 0
    keys_required = demands.keys
    least, most = demands.oldest_ms - base_timestamp, demands.newest_ms - base_timestamp
    largest: int | None = None
    try:
        while index < count:
            passed = at
            # Millions of times. Most numbers have one byte or two; the lowest bit is the sign.
            for index in range(index, min(index + _RECORDS_PER_STEP, count)):  # noqa: B020
                start = at
                number = body[at]
                at += 1
                if number >= 0x80:
                    if (second := body[at]) < 0x80:
                        number = number & 0x7F | second << 7
                        at += 1
                    else:
                        number, at = read_uvarlong(body, at - 1)
                end = at + (number >> 1)
                if number & 1 or end > size:
                    raise CorruptRecords(f"record {index} at byte {start} of {size} claims {end - at} bytes")
                # Attributes have no meaning yet.
                at += 1
                number = body[at]
                at += 1
                if number >= 0x80:
                    if (second := body[at]) < 0x80:
                        number = number & 0x7F | second << 7
                        at += 1
                    else:
                        number, at = read_uvarlong(body, at - 1)
                delta = (number >> 1) ^ -(number & 1)
                if largest is None or delta > largest:
                    largest = delta
                number = body[at]
                at += 1
                if number >= 0x80:
                    if (second := body[at]) < 0x80:
                        number = number & 0x7F | second << 7
                        at += 1
                    else:
                        number, at = read_uvarlong(body, at - 1)
                if number != index << 1:
                    raise CorruptRecords(
                        f"record {index} at byte {start} of {size} has offset delta "
                        f"{(number >> 1) ^ -(number & 1)}; they must be 0, 1, 2 and so on"
                    )
                number = body[at]
                at += 1
                if number >= 0x80:
                    number, at = read_uvarlong(body, at - 1)
                if number & 1:
                    if number != 1:
                        raise CorruptRecords(f"the key of record {index} at byte {start} has a bad length")
                    is_missing = keys_required
                else:
                    at += number >> 1
                    is_missing = False
                if is_missing or (not least <= delta <= most and base_timestamp + delta != NO_TIMESTAMP):
                    fault_count += 1
                    if fault_count <= FAULTS_MAX:
                        faults.append((index, None if is_missing else base_timestamp + delta))
                number = body[at]
                at += 1
                if number >= 0x80:
                    if (second := body[at]) < 0x80:
                        number = number & 0x7F | second << 7
                        at += 1
                    else:
                        number, at = read_uvarlong(body, at - 1)
                if not number & 1:
                    at += number >> 1
                elif number != 1:
                    raise CorruptRecords(f"the value of record {index} at byte {start} has a bad length")
                if body[at]:
                    at = _after_headers(body, at, end, index)
                else:
                    at += 1
                if at != end:
                    raise CorruptRecords(
                        f"record {index} at byte {start} of {size} ends at {at}, its length says {end}"
                    )
            index += 1
            yield at - passed
    except VarintTooLong:
        raise CorruptRecords(f"record {index} at byte {start} has a number of too many bytes") from None
    except IndexError:
        raise CorruptRecords(f"record {index} at byte {start} of {size} is cut off") from None
    if at != size:
        raise CorruptRecords(f"{size - at} bytes are left after the {count} records of the batch")
    return Walked(faults, fault_count, NO_TIMESTAMP if largest is None else base_timestamp + largest)


def _after_headers(body: bytes, at: int, end: int, index: int) -> int:
    number, at = read_uvarlong(body, at)
    count = number >> 1
    # The smallest header is an empty name without a value.
    if number & 1 or count * 2 > end - at:
        raise CorruptRecords(f"record {index} claims {count} headers in {end - at} bytes")
    for _ in range(count):
        number, at = read_uvarlong(body, at)
        if number & 1:
            raise CorruptRecords(f"a header of record {index} has no name")
        number, at = read_uvarlong(body, at + (number >> 1))
        if not number & 1:
            at += number >> 1
        elif number != 1:
            raise CorruptRecords(f"the value of a header of record {index} has a bad length")
    return at
