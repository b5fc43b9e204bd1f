"""What is wrong with a mirror's settings."""

from __future__ import annotations


class SettingError(Exception):
    """The text names the property and what it may be."""
