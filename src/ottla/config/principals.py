"""Principals in settings."""

from __future__ import annotations

from ottla.config.key import ConfigError


def parse_super_users(text: str) -> frozenset[str]:
    """Of `User:alice;User:bob`."""
    users = frozenset(user.strip() for user in text.split(";") if user.strip())
    for user in users:
        if ":" not in user:
            raise ConfigError(
                f"super.users={user}: must be as User:{user}; several are separated by semicolons"
            )
    return users
