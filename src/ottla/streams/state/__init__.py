"""State stores: what stateful operators remember, kept in a plain map from bytes to bytes."""
