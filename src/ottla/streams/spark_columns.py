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

from ottla.streams.column_evaluator import as_column
from ottla.streams.errors import TopologyError
from ottla.streams.operators.column_aggregate import ColumnAggregate
from ottla.streams.operators.columns import ColumnFilter, ColumnOperator, ColumnSelectKey
from ottla.streams.operators.stateless import DropNullKeys
from ottla.streams.plan import Plan, ProcessorNode, SinkNode, SourceNode
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
    """The column expressions right behind a source, first to last."""

    source: SourceNode
    nodes: tuple[str, ...]
    operators: tuple[ColumnOperator, ...]


def column_heads(plan: Plan) -> list[ColumnHead]:
    """For each source, the expressions behind it. Raises if there is one elsewhere."""
    heads = []
    for source in plan.sources():
        nodes: list[str] = []
        operators: list[ColumnOperator] = []
        children = plan.children[source.name]
        while len(children) == 1:
            node = plan.nodes[children[0]]
            if not isinstance(node, ProcessorNode) or not isinstance(node.operator, ColumnOperator):
                break
            nodes.append(node.name)
            operators.append(node.operator)
            children = plan.children[node.name]
        heads.append(ColumnHead(source, tuple(nodes), tuple(operators)))
    refuse_columns(plan, frozenset(name for head in heads for name in head.nodes))
    return heads


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
    if isinstance(node, ProcessorNode) and isinstance(node.operator, DropNullKeys):
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
    source = replace(head.source, topics=(topic,), pattern=None, key=readers[0], value=readers[1])
    return rows, source


def without_head(plan: Plan, head: ColumnHead, source: SourceNode) -> Plan:
    """The plan with a source in place of a source and the expressions behind it."""
    gone = set(head.nodes)
    nodes = {name: node for name, node in plan.nodes.items() if name not in gone}
    nodes[head.source.name] = source
    children = {name: behind for name, behind in plan.children.items() if name not in gone}
    children[head.source.name] = plan.children[head.nodes[-1]]
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
