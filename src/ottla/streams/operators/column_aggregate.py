"""Aggregation by a Spark aggregate expression where there is no Spark query: in the test driver.

Spark keeps partial sums; here the values seen are kept and the expression is evaluated over all of them,
which gives the same results for lists of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output
from ottla.streams.operators.columns import ColumnOperator
from ottla.streams.records import Change, Record
from ottla.streams.state.key_value import KeyValueStore


@dataclass(frozen=True, slots=True)
class ColumnAggregate(ColumnOperator):
    store: str
    history: str
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None or record.value is None:
            context.drop("null key or value in an aggregation")
            return ()
        store: KeyValueStore = context.store(self.store)
        history: KeyValueStore = context.store(self.history)
        data = self.value.serialize(record.value) or b""
        seen = [*json.loads(history.get(record.key) or "[]"), data.hex()]
        history.put(record.key, json.dumps(seen), record.timestamp_ms)
        values = [self.value.deserialize(bytes.fromhex(each)) for each in seen]
        aggregate: Any = context.columns().aggregate(self, record.key, values)
        present = store.get_with_timestamp(record.key)
        timestamp_ms = record.timestamp_ms
        if present is not None:
            timestamp_ms = max(timestamp_ms, present.timestamp_ms)
        store.put(record.key, aggregate, timestamp_ms)
        old = present.value if self.send_old and present is not None else None
        return (Record(record.key, Change(aggregate, old), timestamp_ms, record.headers),)
