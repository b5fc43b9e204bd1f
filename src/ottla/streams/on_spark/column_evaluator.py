"""Evaluates column expressions record by record on a local Spark session, for the test driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.errors import StreamsError
from ottla.streams.expressions import Expression
from ottla.streams.operators.columns import ColumnOperator
from ottla.streams.records import Record
from ottla.streams.serdes import Serde

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ColumnEvaluator:
    """Uses the session that is active, or starts a small one of its own."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        self._owned = active is None
        self._session: SparkSession = active or _local_session()

    def evaluate(self, operator: ColumnOperator, record: Record) -> list[Any]:
        """The value of an expression for one record, once for each row it gives."""
        rows = self._frame(operator, record.key, [record.value], record.timestamp_ms)
        return [row[0] for row in rows.select(as_column(operator.expression)).collect()]

    def aggregate(self, operator: ColumnOperator, key: Any, values: list[Any]) -> Any:
        """The value of an aggregate expression over all values of a key."""
        rows = self._frame(operator, key, values, 0)
        return rows.agg(as_column(operator.expression)).collect()[0][0]

    def close(self) -> None:
        if self._owned:
            self._session.stop()

    def _frame(self, operator: ColumnOperator, key: Any, values: list[Any], timestamp_ms: int) -> DataFrame:
        key_type, value_type = spark_type(operator.key), spark_type(operator.value)
        shown_key = _as_spark(operator.key, key)
        rows = [(shown_key, _as_spark(operator.value, value), timestamp_ms) for value in values]
        schema = f"key {key_type}, value {value_type}, timestamp bigint"
        frame = self._session.createDataFrame(rows, schema)
        return frame.selectExpr("key", "value", "timestamp_millis(timestamp) AS timestamp")


def as_column(expression: Any) -> Any:
    """A PySpark column of what the user gave."""
    if isinstance(expression, Expression):
        from pyspark.sql import functions

        return functions.expr(expression.sql)
    return expression


def spark_type(serde: Serde) -> str:
    if serde.spark_type is None:
        raise StreamsError(
            f"column expressions cannot read values written as {serde.name}: use a function, or a serde of "
            "text, numbers, bytes or JSON"
        )
    return serde.spark_type


def _as_spark(serde: Serde, value: Any) -> Any:
    # JSON is text to Spark: expressions take it apart with from_json and its like.
    if serde.spark_type == "string" and value is not None and not isinstance(value, str):
        return (serde.serialize(value) or b"").decode()
    return value


def _local_session() -> SparkSession:
    from ottla.spark.session import spark_session

    session: SparkSession = spark_session(
        "ottla-test-driver",
        master="local[1]",
        settings={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"},
    )
    return session
