"""Tasks at work: threads that move records between connectors and topics, and queries on Spark."""
