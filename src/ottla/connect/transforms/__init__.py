"""Kafka's transforms and predicates of single records: names, settings and behaviour are those of its own."""
