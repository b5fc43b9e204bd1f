"""Change capture: the rows of PostgreSQL's tables, and every change to them, in Debezium's envelope."""
