"""What is known of a table while the topology is built: whether it is stored, how it is looked up, and
whether its old values are sent along. Asking for a look-up or for old values can make a table be stored that
otherwise would not be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.streams.dsl.parameters import Materialized
from ottla.streams.operators.base import Operator, View
from ottla.streams.operators.table import TableSource, VersionedTableSource
from ottla.streams.operators.views import JoinedView, StoredView, SuppressedView
from ottla.streams.serdes import Serde
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import Duration, milliseconds


class TableState(ABC):
    send_old: bool = False

    @abstractmethod
    def enable_old(self, *, force: bool) -> bool:
        """Have old values sent along, storing the table for it only if forced; whether it will be so."""

    @abstractmethod
    def view(self) -> View:
        """How to look up the table."""

    @abstractmethod
    def view_stores(self) -> tuple[str, ...]:
        """The stores a look-up touches."""

    def history_ms(self) -> int | None:
        """How far back look-ups go, if the table has versions."""
        return None


@dataclass(slots=True)
class SourceTable(TableState):
    spec: StoreSpec
    stored: bool
    send_old: bool = False

    def enable_old(self, *, force: bool) -> bool:
        if not force and not self.stored:
            return False
        self.stored = self.send_old = True
        return True

    def view(self) -> View:
        self.stored = True
        return StoredView(self.spec.name)

    def view_stores(self) -> tuple[str, ...]:
        self.stored = True
        return (self.spec.name,)

    def history_ms(self) -> int | None:
        return self.spec.retention_ms if self.spec.kind is StoreKind.VERSIONED else None

    def operator(self) -> Operator:
        if self.spec.kind is StoreKind.VERSIONED:
            return VersionedTableSource(self.spec.name, self.send_old)
        return TableSource(self.spec.name if self.stored else None, self.send_old)

    def owned(self) -> tuple[StoreSpec, ...]:
        return (self.spec,) if self.stored else ()


def source_table(
    store: str, key: Serde, value: Serde, materialized: Materialized, history: Duration | None
) -> SourceTable:
    """A table of records as they come, with versions if asked for."""
    history_ms = None if history is None else milliseconds("history", history, minimum_ms=1)
    spec = StoreSpec(
        store,
        StoreKind.KEY_VALUE if history_ms is None else StoreKind.VERSIONED,
        key,
        value,
        retention_ms=history_ms or 0,
        queryable=materialized.name is not None,
        logged=materialized.logged,
    )
    return SourceTable(spec, stored=materialized.name is not None or history_ms is not None)


@dataclass(slots=True)
class AggregatedTable(TableState):
    """The result of an aggregation: always stored."""

    spec: StoreSpec
    lookup: View
    send_old: bool = False

    def enable_old(self, *, force: bool) -> bool:
        self.send_old = True
        return True

    def view(self) -> View:
        return self.lookup

    def view_stores(self) -> tuple[str, ...]:
        return (self.spec.name,)


@dataclass(slots=True)
class DerivedTable(TableState):
    """A filter or map of a table: stored only under a given name, else computed from its parent."""

    parent: TableState
    spec: StoreSpec | None
    derive: Callable[[View], View]
    send_old: bool = False

    def enable_old(self, *, force: bool) -> bool:
        if self.spec is not None or self.parent.enable_old(force=force):
            self.send_old = True
        return self.send_old

    def view(self) -> View:
        return self.derive(self.parent.view()) if self.spec is None else StoredView(self.spec.name)

    def view_stores(self) -> tuple[str, ...]:
        return self.parent.view_stores() if self.spec is None else (self.spec.name,)

    def history_ms(self) -> int | None:
        return self.parent.history_ms() if self.spec is None else None


@dataclass(slots=True)
class JoinedTable(TableState):
    left: TableState
    right: TableState
    spec: StoreSpec | None
    joiner: Callable[[Any, Any, Any], Any]
    left_outer: bool
    right_outer: bool
    send_old: bool = False

    def enable_old(self, *, force: bool) -> bool:
        self.left.enable_old(force=True)
        self.right.enable_old(force=True)
        self.send_old = True
        return True

    def view(self) -> View:
        if self.spec is not None:
            return StoredView(self.spec.name)
        return JoinedView(self.left.view(), self.right.view(), self.joiner, self.left_outer, self.right_outer)

    def view_stores(self) -> tuple[str, ...]:
        if self.spec is not None:
            return (self.spec.name,)
        return (*self.left.view_stores(), *self.right.view_stores())


@dataclass(slots=True)
class SuppressedTable(TableState):
    parent: TableState
    spec: StoreSpec
    send_old: bool = False

    def enable_old(self, *, force: bool) -> bool:
        self.send_old = self.parent.enable_old(force=force)
        return self.send_old

    def view(self) -> View:
        return SuppressedView(self.parent.view(), self.spec.name, self.spec.key, self.spec.value)

    def view_stores(self) -> tuple[str, ...]:
        return (self.spec.name, *self.parent.view_stores())
