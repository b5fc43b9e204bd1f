"""User processors as nodes, and how process_values differs from process: it keeps keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.streams.errors import StreamsError
from ottla.streams.operators.base import Context, Output
from ottla.streams.processor import ProcessorSupplier
from ottla.streams.records import Record


@dataclass(frozen=True, slots=True)
class CustomProcessor:
    """Marks a node as user code with a life of its own; the task drives it instead of calling ``process``
    here."""

    supplier: ProcessorSupplier
    fixed_key: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        raise StreamsError("a processor runs only inside a task")
