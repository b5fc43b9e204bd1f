"""A schema registry: Confluent's REST API over a `_schemas` topic of any Kafka-compatible cluster."""
