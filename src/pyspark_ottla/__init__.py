"""Found by Spark under this name, so that `format("ottla")` needs no registration."""

from ottla.spark.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
