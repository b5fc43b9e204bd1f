"""The processor API: user code with state stores and timers inside a topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Protocol

from ottla.streams.records import Origin, Record
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import Duration, milliseconds


class PunctuationType(Enum):
    """What makes a timer fire: the timestamps of records, or the clock."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class ProcessorContext(Protocol):
    """What a processor may do besides computing."""

    @property
    def application_id(self) -> str: ...

    @property
    def partition(self) -> int:
        """The partition of the task the processor works for."""
        ...

    @property
    def record_metadata(self) -> Origin:
        """Where the record being processed came from."""
        ...

    @property
    def current_stream_time_ms(self) -> int:
        """The largest timestamp the task has seen."""
        ...

    @property
    def current_system_time_ms(self) -> int: ...

    def forward(self, record: Record, child: str | None = None) -> None:
        """Pass a record to all children, or to one by its name."""
        ...

    def get_state_store(self, name: str) -> Any: ...

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Cancellable:
        """Call back with the time whenever the interval has passed. Only in ``init``, always in the same
        order: a timer that was cancelled stays so."""
        ...


class Processor:
    """Subclass this. What must survive belongs into a store: instances live for a batch of records only."""

    # Those it brings along: they need not be added to the builder, nor named where it is used.
    stores: ClassVar[Sequence[StoreSpec]] = ()
    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first record: look up stores and schedule timers here."""
        self.context = context

    def process(self, record: Record) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define process(record)")

    def close(self) -> None:
        """Called after the last record."""


class ValueTransformer:
    """Subclass this for ``KTable.transform_values``. As of a processor, what must survive belongs into a
    store."""

    stores: ClassVar[Sequence[StoreSpec]] = ()
    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called before the first row: look up stores here."""
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        """The new value of a row; ``None`` deletes it."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(key, value)")

    def close(self) -> None:
        """Called after the last row."""


ProcessorSupplier = Callable[[], Processor]
TransformerSupplier = Callable[[], ValueTransformer]


def brought_stores(supplier: ProcessorSupplier | TransformerSupplier) -> tuple[StoreSpec, ...]:
    """Of a class, of ``functools.partial`` on one, or of any supplier that has ``stores``."""
    made_by = supplier.func if isinstance(supplier, partial) else supplier
    return tuple(getattr(made_by, "stores", ()))


class Stores:
    """Declares stores for ``StreamsBuilder.add_state_store``."""

    @staticmethod
    def key_value_store(
        name: str,
        key: Serde | type,
        value: Serde | type,
        *,
        ttl: Duration | None = None,
        logged: bool = True,
    ) -> StoreSpec:
        """With a ``ttl``, what was not put again for that long, by stream time, is forgotten."""
        return StoreSpec(
            name,
            StoreKind.KEY_VALUE,
            Serdes.of(key),
            Serdes.of(value),
            retention_ms=0 if ttl is None else milliseconds("ttl", ttl, minimum_ms=1),
            queryable=True,
            logged=logged,
        )

    @staticmethod
    def versioned_key_value_store(
        name: str,
        key: Serde | type,
        value: Serde | type,
        *,
        history: Duration,
        logged: bool = True,
    ) -> StoreSpec:
        """What values were at a time, as far back as the history goes."""
        return StoreSpec(
            name,
            StoreKind.VERSIONED,
            Serdes.of(key),
            Serdes.of(value),
            retention_ms=milliseconds("history", history, minimum_ms=1),
            queryable=True,
            logged=logged,
        )

    @staticmethod
    def window_store(
        name: str,
        key: Serde | type,
        value: Serde | type,
        *,
        window_size: Duration,
        retention: Duration,
        retain_duplicates: bool = False,
    ) -> StoreSpec:
        size_ms = milliseconds("window size", window_size, minimum_ms=1)
        return StoreSpec(
            name,
            StoreKind.WINDOW,
            Serdes.of(key),
            Serdes.of(value),
            size_ms=size_ms,
            retention_ms=milliseconds("retention", retention, minimum_ms=size_ms),
            retain_duplicates=retain_duplicates,
            queryable=True,
        )

    @staticmethod
    def session_store(name: str, key: Serde | type, value: Serde | type, *, retention: Duration) -> StoreSpec:
        retention_ms = milliseconds("retention", retention, minimum_ms=1)
        return StoreSpec(
            name,
            StoreKind.SESSION,
            Serdes.of(key),
            Serdes.of(value),
            retention_ms=retention_ms,
            queryable=True,
        )
