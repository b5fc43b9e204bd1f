"""Which tables of a topology can be asked, and the view of each: its changelog, or a global table's topic."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.streams.errors import StoreError
from ottla.streams.plan.plan import Plan, ProcessorNode, SourceNode
from ottla.streams.queries.view import TableView
from ottla.streams.serdes import Serde, session_windowed_serde, time_windowed_serde
from ottla.streams.state.spec import StoreKind, StoreSpec


def table_names(plan: Plan) -> list[str]:
    """Stores that the program has given a name, and that have a topic to read them from."""
    return sorted(
        name for name, spec in plan.stores.items() if spec.queryable and _has_topic(plan, name, spec)
    )


def open_table(
    plan: Plan, application_id: str, name: str, bootstrap_servers: str, properties: Mapping[str, str]
) -> TableView:
    if name not in table_names(plan):
        known = ", ".join(table_names(plan)) or "none"
        raise StoreError(
            f"there is no table {name} to ask; {application_id} has: {known}. Tables are named with "
            'Materialized.as_("name")'
        )
    spec = plan.stores[name]
    topic = f"{application_id}-{spec.changelog}"
    if name in plan.global_stores:
        topic = _global_topic(plan, name)
    return TableView(bootstrap_servers, topic, key=_key_serde(spec), value=spec.value, properties=properties)


def _has_topic(plan: Plan, name: str, spec: StoreSpec) -> bool:
    return spec.logged or name in plan.global_stores


def _global_topic(plan: Plan, store: str) -> str:
    for name in sorted(plan.global_nodes):
        node = plan.nodes[name]
        if isinstance(node, ProcessorNode) and store in node.stores:
            for parent in plan.parents(name):
                source = plan.nodes[parent]
                if isinstance(source, SourceNode):
                    return source.topics[0]
    raise AssertionError(f"the global store {store} has no source")


def _key_serde(spec: StoreSpec) -> Serde:
    match spec.kind:
        case StoreKind.WINDOW:
            return time_windowed_serde(spec.key, spec.size_ms)
        case StoreKind.SESSION:
            return session_windowed_serde(spec.key)
        case _:
            return spec.key
