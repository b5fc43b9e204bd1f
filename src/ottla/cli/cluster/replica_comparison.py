"""Whether replicas hold the same batches, as far as everybody has been told that they are committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.fetch import Fetched
from ottla.records.batch import iter_headers

# Behind the leader epoch, which a replica may set differently for batches it was given without one.
_COMPARED_FROM = 16


class Compared(NamedTuple):
    next_offset: int
    """Where to go on: behind what all of them have."""
    faults: list[str]
    is_hopeless: bool
    """Offsets differ: there is nothing to compare from here on."""


class _Batch(NamedTuple):
    last_offset: int
    crc: int
    data: memoryview


def compare(fetched: Mapping[int, Fetched], offset: int) -> Compared:
    """What replicas answered, by broker, all asked for the same offset."""
    batches = {broker: _committed(each) for broker, each in sorted(fetched.items())}
    faults: list[str] = []
    for row in zip(*batches.values(), strict=False):
        (first_broker, *brokers), (first, *others) = list(batches), row
        for broker, batch in zip(brokers, others, strict=True):
            if batch.last_offset != first.last_offset:
                faults.append(
                    f": replica {first_broker}'s offset {first.last_offset} doesn't match "
                    f"replica {broker}'s offset {batch.last_offset}"
                )
                return Compared(offset, faults, is_hopeless=True)
            if batch.crc != first.crc:
                faults.append(
                    f" has unmatched checksum at offset {batch.last_offset}; replica {first_broker}'s "
                    f"checksum {first.crc}; replica {broker}'s checksum {batch.crc}"
                )
            elif batch.data != first.data:
                faults.append(
                    f" has different bytes at offset {batch.last_offset} in replica {first_broker} and "
                    f"replica {broker}, with the same checksum: one of them is damaged on disk"
                )
        offset = first.last_offset + 1
    return Compared(offset, faults, is_hopeless=False)


def _committed(fetched: Fetched) -> list[_Batch]:
    found = []
    for position, header in iter_headers(fetched.records):
        end = position + header.size
        if header.last_offset >= fetched.high_watermark or end > len(fetched.records):
            break
        data = fetched.records[position + _COMPARED_FROM : end]
        found.append(_Batch(header.last_offset, header.crc, data))
    return found
