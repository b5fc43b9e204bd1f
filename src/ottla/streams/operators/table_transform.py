"""A table of values that user code makes, with stores of its own: a processor that sends changes on."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.processor import Processor, ProcessorContext, TransformerSupplier
from ottla.streams.records import Change, Record
from ottla.streams.state.key_value import KeyValueStore


@dataclass(frozen=True, slots=True)
class TableTransformSupplier:
    """Old values come from a store: to make them again could change what the transformer remembers."""

    supplier: TransformerSupplier
    store: str | None
    send_old: bool

    def __call__(self) -> Processor:
        return TableTransform(self)


class TableTransform(Processor):
    def __init__(self, settings: TableTransformSupplier) -> None:
        self._send_old = settings.send_old
        self._store_name = settings.store
        self._transformer = settings.supplier()
        self._store: KeyValueStore | None = None

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._transformer.init(context)
        if self._store_name is not None:
            self._store = context.get_state_store(self._store_name)

    def process(self, record: Record) -> None:
        change: Change = record.value
        new = self._transformer.transform(record.key, change.new)
        old = None
        if self._store is not None:
            old = self._store.get(record.key) if self._send_old else None
            self._store.put(record.key, new, record.timestamp_ms)
        self.context.forward(record.with_value(Change(new, old)))

    def close(self) -> None:
        self._transformer.close()
