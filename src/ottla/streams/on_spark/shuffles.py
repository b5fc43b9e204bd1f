"""Among how many of Spark's own tasks the work of a stateful query is divided: its shuffle partitions.

A checkpoint keeps the number that it began with, since state lies in it by that number. Spark can divide it
anew, as a micro-batch without records.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.spark.engine import repartition_state
from ottla.streams.errors import StreamsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_REFUSAL = re.compile(r"STATE_REPARTITION_INVALID_CHECKPOINT\.(\w+)")
_SAME_NUMBER = "SHUFFLE_PARTITIONS_ALREADY_MATCH"
_UNFINISHED = {"LAST_BATCH_FAILED", "NO_COMMITTED_BATCH"}


def divide_state(session: SparkSession, checkpoint: str, partitions: int, finish: Callable[[], None]) -> None:
    """Of a query that has begun a micro-batch. `finish` does the last one again, if it was not completed."""
    for is_finished in (False, True):
        try:
            repartition_state(session, checkpoint, partitions)
        except Exception as error:
            # Spark has no Python class for it, only the text.
            refusal = _REFUSAL.search(str(error))
            reason = refusal[1] if refusal else ""
            if reason == _SAME_NUMBER:
                return
            if reason not in _UNFINISHED or is_finished:
                text = str(error).partition("\n\tat ")[0]
                raise StreamsError(
                    f"the state in {checkpoint} cannot be divided among {partitions} tasks of Spark: {text}"
                ) from error
            finish()
        else:
            return
