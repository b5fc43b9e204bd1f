"""Connections: bytes in, requests dispatched, replies out in order, limits kept."""
