"""Record batches on their way from tasks to a driver on the same machine: in files, past Spark.

Through Spark they would be copied a dozen times, and wait for a shuffle. With all tasks on one machine the
driver can be the only writer of a transaction itself, and has nothing to do but send.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ottla.spark.sink_options import SinkOptions
from ottla.spark.task_writing import as_arrow, encoded
from ottla.spark.workers import settle

# Of so many rows, or more, a micro-batch that follows one is spooled, however few records it takes.
_ROWS_MANY: Final = 10_000

SPOOLED_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("length", pa.int32()),
    ]
)
SPOOLED_TYPES: Final = "topic string, partition int, records int, file string, position bigint, length int"


@dataclass(frozen=True, slots=True)
class SpoolTask:
    """Rows → record batches in a file of their own, for `mapInArrow`; gives where they lie."""

    options: SinkOptions
    directory: str

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        settle()
        places: list[tuple[str, int, int, str, int, int]] = []
        # A name that no other attempt has; whoever runs a task again leaves the file of the first alone.
        descriptor, path = tempfile.mkstemp(dir=self.directory)
        with os.fdopen(descriptor, "wb") as file:
            for (topic, partition), record_count, data in encoded(rows, self.options):
                places.append((topic, partition, record_count, path, file.tell(), len(data)))
                file.write(data)
        if places:
            yield as_arrow(places, SPOOLED_SCHEMA)


@dataclass(frozen=True, slots=True)
class Collected:
    """A micro-batch in the driver: where it goes, and its record batches, which are there one at a time."""

    targets: list[tuple[str, int]]
    batches: Iterable[tuple[tuple[str, int], int, Any]]


class Spool:
    """The driver's end: a directory that lives as long as the query."""

    def __init__(self, parent: str | None, options: SinkOptions, *, is_query_encoded: bool) -> None:
        """Whether the query uses `encode` itself, or gives rows to the driver."""
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-batches-", dir=parent)
        self._options = options
        self.is_query_encoded = is_query_encoded
        # Those of the last micro-batch: few records can lead to many, and the driver would hold all of them.
        self._row_count = _ROWS_MANY

    @property
    def directory(self) -> str:
        return self._directory.name

    @property
    def encode(self) -> SpoolTask:
        return SpoolTask(self._options, self.directory)

    def collect(self, frame: Any, *, is_small: bool) -> Collected:
        """Runs a micro-batch. For few rows it is not worth while to have Python workers encode them."""
        if is_small and not self.is_query_encoded and self._row_count < _ROWS_MANY:
            made = list(encoded(frame.toArrow().to_batches(), self._options))
            self._row_count = sum(count for _, count, _ in made)
            return Collected(sorted({target for target, _, _ in made}), made)
        if not self.is_query_encoded:
            frame = frame.mapInArrow(self.encode, SPOOLED_TYPES)
        places = frame.collect()
        self._row_count = sum(place.records for place in places)
        targets = sorted({(place.topic, place.partition) for place in places})
        return Collected(targets, self.read(places))

    def read(self, places: Iterable[Any]) -> Iterator[tuple[tuple[str, int], int, memoryview]]:
        """Target, number of records and data of each batch; the data is there until the next is asked for."""
        path, data = "", memoryview(b"")
        for place in places:
            if place.file != path:
                path = place.file
                with open(path, "rb") as file:
                    data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            batch = data[place.position : place.position + place.length]
            yield (place.topic, place.partition), place.records, batch

    def clear(self) -> None:
        for entry in os.scandir(self.directory):
            os.unlink(entry.path)


def spool_of(spark: Any, options: SinkOptions, *, is_query_encoded: bool) -> Spool | None:
    """For sessions whose tasks all run on the driver's machine, where Spark itself would put files."""
    context = spark.sparkContext
    if not context.master.startswith("local") or context.master.startswith("local-cluster"):
        return None
    parents = os.environ.get("SPARK_LOCAL_DIRS") or context.getConf().get("spark.local.dir", "")
    return Spool(parents.split(",")[0] or None, options, is_query_encoded=is_query_encoded)
