"""How values become bytes of a topic and back; formats and settings are Kafka's."""
