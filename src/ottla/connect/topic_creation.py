"""The topics that a source writes to, as `topic.creation.*` of its configuration want them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.client.admin.topics import NewTopic
from ottla.connect.connector_settings import aliases

_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"


def wanted_topic(given: Mapping[str, str], topic: str) -> NewTopic:
    """The first group whose patterns match the name; without one, the defaults, and the brokers' for
    the rest."""
    group = next(
        (each for each in aliases(given.get("topic.creation.groups")) if _holds(given, each, topic)), None
    )
    found: dict[str, str] = {}
    for name in (_DEFAULT, group):
        if name is not None:
            prefix = f"{_PREFIX}{name}."
            found |= {
                key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)
            }
    partitions, factor = int(found.pop("partitions", "-1")), int(found.pop("replication.factor", "-1"))
    found.pop("include", None)
    found.pop("exclude", None)
    return NewTopic(topic, partitions, factor, found)


def _holds(given: Mapping[str, str], group: str, topic: str) -> bool:
    include = aliases(given.get(f"{_PREFIX}{group}.include"))
    exclude = aliases(given.get(f"{_PREFIX}{group}.exclude"))
    return _matches(include, topic) and not _matches(exclude, topic)


def _matches(patterns: list[str], topic: str) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in patterns)
