"""Features a cluster agrees on by level: what this version supports and what a new cluster starts with.

Adding one is a line in `FEATURES`; a level is only listed once the behaviour behind it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.metadata.records import FeatureLevelRecord, MetadataRecordError, SupportedFeature

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"


class Feature(NamedTuple):
    name: str
    level_min: int
    level_max: int
    level_new: int
    """What a new cluster is given."""


FEATURES = (
    # 23 is Kafka's 4.0-IV1, the first whose records have the versions that `records` writes. 30 is 4.3-IV0,
    # with which that release formats; a new cluster has 27, 4.1-IV1, so that older ones can open it, too.
    Feature(METADATA_VERSION, level_min=23, level_max=30, level_new=27),
    # 1 is consumer groups of the new protocol (KIP-848).
    Feature(GROUP_VERSION, level_min=0, level_max=1, level_new=1),
    # 1 stores transactions in records that can be extended, 2 bumps the epoch with each of them (KIP-890).
    Feature(TRANSACTION_VERSION, level_min=0, level_max=2, level_new=2),
    # 1 is share groups (KIP-932).
    Feature(SHARE_VERSION, level_min=0, level_max=1, level_new=1),
    # 1 remembers who left an ISR that became too small, as they may lead when all others are gone (KIP-966).
    Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, level_min=0, level_max=1, level_new=1),
    # 1 has the quorum's voters in its log, where they can be changed (KIP-853). Its level is there, too,
    # and not among the records of features.
    Feature(KRAFT_VERSION, level_min=0, level_max=1, level_new=0),
)

# Of Apache Kafka's own, which has them on from the start: a broker that could not bear them could not join.
# What they turn on is asked for by APIs that Ottla does not advertise, so that who wants it finds out.
_BORNE = (SupportedFeature(name="streams.version", min_supported_version=0, max_supported_version=1),)

METADATA_CHANGES = (23, 30)
"""Levels of metadata.version that brought records or fields which those before cannot keep: there is no way
back across one of them."""


def new_cluster_records() -> list[FeatureLevelRecord]:
    """`metadata.version` leads: it says how to read everything after it."""
    return [
        FeatureLevelRecord(name=feature.name, feature_level=feature.level_new)
        for feature in FEATURES
        if feature.level_new > 0
    ]


def supported_features() -> tuple[SupportedFeature, ...]:
    """As a broker tells the controller."""
    own = (
        SupportedFeature(
            name=feature.name,
            min_supported_version=feature.level_min,
            max_supported_version=feature.level_max,
        )
        for feature in FEATURES
    )
    return (*own, *_BORNE)


def check_supported(levels: Mapping[str, int]) -> None:
    for feature in FEATURES:
        level = levels.get(feature.name)
        if level is not None and not feature.level_min <= level <= feature.level_max:
            raise MetadataRecordError(
                f"the cluster's {feature.name} is {level}; this version supports "
                f"{feature.level_min} to {feature.level_max}"
            )
