"""Levels of features by the Kafka releases that introduced them."""

from __future__ import annotations

METADATA_VERSION = "metadata.version"

RELEASES = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}


# By feature: for each level from 1 on, the level of metadata.version whose clusters begin with it.
_BEGIN_WITH = {
    "kraft.version": (21,),
    "transaction.version": (24, 24),
    "group.version": (22,),
    "eligible.leader.replicas.version": (26,),
    "share.version": (28,),
    "streams.version": (29,),
}
FEATURE_NAMES = tuple(_BEGIN_WITH)
_DEPENDENCIES = {("eligible.leader.replicas.version", 1): {METADATA_VERSION: 23}}


def default_levels(metadata_level: int) -> dict[str, int]:
    """What a new cluster with this level of metadata.version begins with."""
    return {name: sum(needed <= metadata_level for needed in levels) for name, levels in _BEGIN_WITH.items()}


def dependencies(feature: str, level: int) -> dict[str, int]:
    """Levels of other features without which this one cannot be set. LookupError for a level there is not."""
    if not 0 <= level <= len(_BEGIN_WITH[feature]):
        raise LookupError(f"No feature:{feature} with feature level {level}")
    return _DEPENDENCIES.get((feature, level), {})


def level_text(feature: str, level: int) -> str:
    """`4.1-IV1` for a level of metadata.version, the number for all other features."""
    return RELEASES.get(level, f"UNKNOWN {level}") if feature == METADATA_VERSION else str(level)


def level_of(release: str) -> int | None:
    """Of a name such as 4.1-IV1, or 4.1 for the last of that release."""
    levels = [level for level, name in RELEASES.items() if name == release or name.startswith(f"{release}-")]
    return max(levels, default=None)
