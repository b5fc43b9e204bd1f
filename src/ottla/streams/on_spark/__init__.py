"""Plans as streaming queries: the only part of Streams that knows Spark."""
