"""Levels of features, raised and lowered: only to what every node of the cluster supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.controller.command import Result
from ottla.controller.configs import ISR_MIN
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_CHANGES,
    METADATA_VERSION,
)
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord, SupportedFeature
from ottla.wire.errors import InvalidUpdateVersion

_DISABLED = (0, 0)


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    """0 disables the feature."""
    upgrade_type: int


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    node_id: int,
    *,
    isr_min: int = 1,
    kraft_version: int = 0,
) -> Result[None]:
    """All of the updates or, with InvalidUpdateVersion, none.

    `isr_min` is the configured min.insync.replicas. Of `kraft_version` no record comes: it is the quorum's.
    """
    current = {**image.features, KRAFT_VERSION: kraft_version}
    records: list[MetadataRecord] = []
    for update in updates:
        _check(image, update, current.get(update.name, 0), node_id)
        if update.name == KRAFT_VERSION:
            continue
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if update.name == ELIGIBLE_LEADER_REPLICAS_VERSION and update.level > 0:
            records += one_isr_min(image, isr_min)
    return Result(records, None)


def one_isr_min(image: MetadataImage, isr_min: int) -> list[MetadataRecord]:
    """Who is eligible to lead depends on it, so the cluster has to have one, and not each broker its own."""
    records: list[MetadataRecord] = []
    if ISR_MIN not in image.config(ResourceType.BROKER, ""):
        records.append(
            ConfigRecord(
                resource_type=ResourceType.BROKER, resource_name="", name=ISR_MIN, value=str(isr_min)
            )
        )
    for (kind, name), values in sorted(image.configs.items()):
        if kind == ResourceType.BROKER and name and ISR_MIN in values:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=ISR_MIN, value=None))
    return records


def _check(image: MetadataImage, update: FeatureUpdate, current: int, node_id: int) -> None:
    if update.upgrade_type not in UpgradeType.__members__.values():
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    if update.level == 0 and update.name not in {feature.name for feature in FEATURES}:
        raise _invalid(update, f"Feature {update.name} not found.")
    local = {feature.name: (feature.level_min, feature.level_max) for feature in FEATURES}
    _check_support(update, f"Local controller {node_id}", local)
    for broker in image.brokers.values():
        _check_support(update, f"Broker {broker.id}", _levels(broker.features))
    for controller in image.controllers.values():
        _check_support(update, f"Controller {controller.controller_id}", _levels(controller.features))
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade.",
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.level < current and update.name == KRAFT_VERSION:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    if update.name == METADATA_VERSION and any(update.level < level <= current for level in METADATA_CHANGES):
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        raise InvalidUpdateVersion(
            f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}"
        )


def _levels(features: Sequence[SupportedFeature]) -> dict[str, tuple[int, int]]:
    return {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in features
    }


def _check_support(update: FeatureUpdate, who: str, supported: Mapping[str, tuple[int, int]]) -> None:
    low, high = supported.get(update.name, _DISABLED)
    # Without a level of the metadata, nobody could read what follows.
    can_be_disabled = update.name != METADATA_VERSION
    if low <= update.level <= high or (update.level == 0 and can_be_disabled):
        return
    if (low, high) == _DISABLED:
        raise _invalid(update, f"{who} does not support this feature.")
    raise _invalid(update, f"{who} only supports versions {low}-{high}")


def _invalid(update: FeatureUpdate, reason: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(f"Invalid update version {update.level} for feature {update.name}. {reason}")
