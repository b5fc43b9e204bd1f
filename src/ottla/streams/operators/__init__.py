"""Operators: each node of a topology as a deterministic state machine over stores, without I/O, clock or
Spark."""
