"""State from a changelog: what a store and the task around it knew, as far as a topic can tell."""

from __future__ import annotations

from ottla.streams.errors import StoreError
from ottla.streams.plan.plan import Plan, ProcessorNode
from ottla.streams.records import InputBatch
from ottla.streams.state.backend import Backend
from ottla.streams.state.key_value import KeyValueStore
from ottla.streams.state.session import SessionStore
from ottla.streams.state.spec import open_store
from ottla.streams.state.versioned import VersionedStore
from ottla.streams.state.window import WindowStore
from ottla.streams.tasks.task import STREAM_TIME, Memory, node_time


def restore(plan: Plan, name: str, records: InputBatch, *, backend: Backend, memory_backend: Backend) -> None:
    """Fill a store. Times are those of its last change: records later than they were are on time again."""
    store = open_store(plan.stores[name], backend)
    if not isinstance(store, KeyValueStore | VersionedStore | WindowStore | SessionStore):
        raise StoreError(f"the store {name} cannot be restored from a changelog")
    latest_ms = -1
    for key, value, timestamp_ms in zip(records.keys, records.values, records.timestamps_ms, strict=True):
        store.restore(key or b"", value, timestamp_ms)
        latest_ms = max(latest_ms, timestamp_ms)
    store.flush()
    memory = Memory(memory_backend)
    memory.advance(STREAM_TIME, latest_ms)
    for node in plan.nodes.values():
        if isinstance(node, ProcessorNode) and name in node.stores:
            memory.advance(node_time(node.name), latest_ms)
    memory.flush()
