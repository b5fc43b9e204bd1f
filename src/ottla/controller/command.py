"""What a command gives back: records to persist, and the answer to release once they are committed.

Commands are plain functions of the newest image and their arguments; they change nothing themselves. Those
for lists of any length are generators, which pause at each item so that whoever runs them may pause as well.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ottla.metadata.records import MetadataRecord
from ottla.wire.errors import PolicyViolation

T = TypeVar("T")

# Kafka's limit of what one request may change; a larger batch would hold up everybody else's.
RECORDS_MAX = 10_000


class Result(NamedTuple, Generic[T]):
    records: list[MetadataRecord]
    response: T


Deciding: TypeAlias = Generator[None, None, Result[T]]


def check_size(records: list[MetadataRecord]) -> None:
    if len(records) > RECORDS_MAX:
        raise PolicyViolation(
            f"Unable to perform excessively large batch operation: it would write {len(records)} metadata "
            f"records, at most {RECORDS_MAX} are allowed; split the request."
        )
