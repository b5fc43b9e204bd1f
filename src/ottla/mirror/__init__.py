"""Mirroring between clusters: `ottla mirror`, with MirrorMaker 2's settings, names and record formats.

Plain asyncio over `client/`, and not on Spark: record batches travel as they are, so there is nothing to
compute.
"""
