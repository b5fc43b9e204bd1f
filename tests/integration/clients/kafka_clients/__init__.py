"""Real Kafka clients behind one small interface, so that one test runs with each and between any two."""
