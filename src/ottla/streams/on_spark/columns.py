"""Column expressions in queries: the head of a stateless part that Spark runs itself, without Python.

Right behind a topic, expressions work on typed columns: key and value are decoded as their serdes say. Where
functions take over, columns become text again in forms any type has, and a source of that form feeds the
rest of the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ottla.streams.errors import TopologyError
from ottla.streams.on_spark.column_evaluator import as_column
from ottla.streams.operators.column_aggregate import ColumnAggregate
from ottla.streams.operators.columns import ColumnFilter, ColumnOperator, ColumnSelectKey
from ottla.streams.operators.stateless import DropNullKeys, PassThrough
from ottla.streams.plan.plan import Node, Plan, ProcessorNode, SinkNode, SourceNode
from ottla.streams.serdes import Serde, Serdes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What each type looks like in a record: big-endian, as Kafka's serdes write it.
_ENCODED = {
    "string": "CAST(CAST({0} AS STRING) AS BINARY)",
    "binary": "CAST({0} AS BINARY)",
    "bigint": "unhex(lpad(hex(CAST({0} AS BIGINT)), 16, '0'))",
}
_DECODED = {
    "string": "CAST({0} AS STRING)",
    "binary": "{0}",
    "bigint": "CAST(conv(hex({0}), 16, -10) AS BIGINT)",
}


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """Column expressions right behind a source, first to last; none for what functions do with the source."""

    source: SourceNode
    nodes: tuple[str, ...] = ()
    operators: tuple[ColumnOperator, ...] = ()


def column_heads(plan: Plan) -> list[ColumnHead]:
    """The expressions behind sources, and the sources functions follow. Raises if there are others
    elsewhere."""
    heads = []
    for source in plan.sources():
        chains = [_chain(plan, child) for child in plan.children[source.name]]
        heads += [ColumnHead(source, *zip(*chain, strict=True)) for chain in chains if chain]
        if not all(chains) or not chains:
            heads.append(ColumnHead(source))
    refuse_columns(plan, frozenset(name for head in heads for name in head.nodes))
    return heads


def _chain(plan: Plan, name: str) -> list[tuple[str, ColumnOperator]]:
    """A node and those behind it, as long as they are expressions with one child."""
    chain: list[tuple[str, ColumnOperator]] = []
    following: tuple[str, ...] = (name,)
    while len(following) == 1:
        node = plan.nodes[following[0]]
        if not isinstance(node, ProcessorNode) or not isinstance(node.operator, ColumnOperator):
            break
        chain.append((node.name, node.operator))
        following = plan.children[node.name]
    return chain


def refuse_columns(plan: Plan, allowed: frozenset[str] = frozenset()) -> None:
    for node in plan.nodes.values():
        is_column = isinstance(node, ProcessorNode) and isinstance(node.operator, ColumnOperator)
        if is_column and node.name not in allowed:
            raise TopologyError(
                f"{node.name} is a column expression where only a function can run: "
                "column expressions come right behind a topic, or as an aggregation; use a function here"
            )


def apply_columns(head: ColumnHead, records: DataFrame) -> DataFrame:
    """Records with key and value as columns of their types, after all expressions."""
    from pyspark.sql import functions

    first = head.operators[0]
    typed = records.withColumn("key", functions.expr(decode(first.key, "key")))
    typed = typed.withColumn("value", functions.expr(decode(first.value, "value")))
    for operator in head.operators:
        column = as_column(operator.expression)
        if isinstance(operator, ColumnFilter):
            typed = typed.where(~column if operator.negate else column)
        elif isinstance(operator, ColumnAggregate):
            raise TopologyError("an aggregate expression cannot be applied to single records")
        else:
            typed = typed.withColumn("key" if isinstance(operator, ColumnSelectKey) else "value", column)
    return typed


def ends_at(plan: Plan, head: ColumnHead) -> SinkNode | None:
    """The sink, if nothing but expressions lies between a source and a topic."""
    children = plan.children[head.nodes[-1] if head.nodes else head.source.name]
    if len(children) != 1:
        return None
    node = plan.nodes[children[0]]
    if isinstance(node, ProcessorNode) and isinstance(node.operator, DropNullKeys | PassThrough):
        (last,) = plan.children[node.name]
        node = plan.nodes[last]
    if not isinstance(node, SinkNode) or not isinstance(node.topic, str) or node.partitioner is not None:
        return None
    return node if {node.key.spark_type, node.value.spark_type} <= set(_ENCODED) else None


def as_text(typed: DataFrame, head: ColumnHead) -> tuple[DataFrame, SourceNode]:
    """Typed rows as records again, and the source that reads them in place of the head."""
    key_form, key_reader = _text_form("key", dict(typed.dtypes)["key"])
    value_form, value_reader = _text_form("value", dict(typed.dtypes)["value"])
    topic = f"columns of {head.nodes[-1]}"
    rows = typed.selectExpr(
        f"'{topic}' AS topic",
        "partition",
        "offset",
        "timestamp",
        f"{key_form} AS key",
        f"{value_form} AS value",
        "headers",
        "topic AS origin_topic",
        "partition AS origin_partition",
    )
    readers = [
        Serde(name, Serdes.bytes().writer, reader)
        for name, reader in (("key column", key_reader), ("value column", value_reader))
    ]
    return rows, SourceNode(head.nodes[-1], (topic,), readers[0], readers[1])


def without_head(plan: Plan, head: ColumnHead, source: SourceNode) -> Plan:
    """The plan with a source in place of expressions."""
    nodes: dict[str, Node] = {name: node for name, node in plan.nodes.items() if name not in head.nodes}
    children = {name: plan.children[name] for name in nodes}
    remaining = tuple(child for child in plan.children[head.source.name] if child != head.nodes[0])
    children[head.source.name] = remaining
    if not remaining:
        del nodes[head.source.name], children[head.source.name]
    nodes[source.name] = source
    children[source.name] = plan.children[source.name]
    return replace(plan, nodes=nodes, children=children)


def _text_form(column: str, kind: str) -> tuple[str, Callable[[bytes], Any]]:
    if kind == "binary":
        return column, _read_bytes
    if kind.startswith(("struct", "array", "map")):
        return f"CAST(to_json({column}) AS BINARY)", json.loads
    reader = _read_text
    if kind in {"tinyint", "smallint", "int", "bigint"}:
        reader = _read_int
    elif kind in {"float", "double"} or kind.startswith("decimal"):
        reader = _read_float
    elif kind == "boolean":
        reader = _read_boolean
    return f"CAST(CAST({column} AS STRING) AS BINARY)", reader


def _read_bytes(data: bytes) -> Any:
    return data


def _read_text(data: bytes) -> Any:
    return data.decode()


def _read_int(data: bytes) -> Any:
    return int(data)


def _read_float(data: bytes) -> Any:
    return float(data)


def _read_boolean(data: bytes) -> Any:
    return data == b"true"


def encode(serde: Serde, column: str) -> str:
    return _in_spark(serde, _ENCODED).format(column)


def decode(serde: Serde, column: str) -> str:
    return _in_spark(serde, _DECODED).format(column)


def _in_spark(serde: Serde, forms: Mapping[str, str]) -> str:
    form = forms.get(serde.spark_type or "")
    if form is None:
        raise TopologyError(
            f"column expressions cannot use keys and values written as {serde.name}: "
            "use text, JSON, long or bytes, or functions"
        )
    return form
