"""Topics as Arrow in Spark: a session that is ready, a data source, and a writer that writes exactly once."""
