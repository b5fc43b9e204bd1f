"""This broker's place in its cluster: the way to the active controller, registration, heartbeats."""

from __future__ import annotations


class NotJoined(Exception):
    """The cluster has not taken this broker; the text is for whoever started it."""
