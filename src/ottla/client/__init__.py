"""Requests to other brokers: `peer` holds one connection, `messages` the codecs of its side of the wire."""
