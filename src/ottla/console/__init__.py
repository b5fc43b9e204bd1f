"""The web console: pages and a JSON API about any Kafka-compatible cluster, through the public protocol."""
