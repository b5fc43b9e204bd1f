"""`spark.read.format("ottla")` and its three sisters. Spark finds it by itself, as `pyspark_ottla`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.source_options import SourceOptions

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = ", headers array<struct<key:string,value:binary>>"


class OttlaDataSource(DataSource):
    """The schema and the options of Spark's Kafka source, against Ottla or Apache Kafka.

    What reads is imported when it is needed: Spark imports this module just to learn its name.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        include_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        schema = SCHEMA + HEADERS if include_headers else SCHEMA
        if "valueFormat" not in self.options:
            return schema
        from ottla.spark.source_options import source_options

        values = source_options(self.options, streaming=False).values
        return schema.replace("value binary", f"value {values.spark_type()}", 1)

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.source import OttlaFilteringReader, OttlaReader
        from ottla.spark.source_options import source_options

        options = source_options(self.options, streaming=False)
        kind = OttlaFilteringReader if options.filter_pushdown else OttlaReader
        return kind(options, _value_type(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.spark.source import OttlaStreamReader
        from ottla.spark.source_options import source_options

        options = source_options(self.options, streaming=True)
        return OttlaStreamReader(options, _value_type(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _value_type(options: SourceOptions, schema: StructType) -> pa.DataType | None:
    """Of values that are decoded while they are read, as Arrow has it."""
    if options.values.is_binary:
        return None
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(schema["value"].dataType, timezone="UTC")
