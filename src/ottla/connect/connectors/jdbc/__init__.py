"""Tables of relational databases as sources and sinks, under the settings of Confluent's JDBC connector.

Tasks speak to databases through Python's drivers, not through Spark's JDBC: that one appends or overwrites,
and knows neither upserts, deletes, nor where it read up to. No Java and no jar is needed.
"""
