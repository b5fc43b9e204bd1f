"""Levels of features: what may be raised, lowered and disabled."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.controller.features import FeatureUpdate, UpgradeType, update_features
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.features import GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION, new_cluster_records
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord, RegisterBrokerRecord, SupportedFeature
from ottla.wire.errors import InvalidUpdateVersion

UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE


def cluster(*more: MetadataRecord) -> MetadataImage:
    records = [*new_cluster_records(), *more]
    return MetadataImage().apply_all(records, len(records) - 1, 1)


def old_broker() -> RegisterBrokerRecord:
    features = (
        SupportedFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=25),
        SupportedFeature(name=TRANSACTION_VERSION, min_supported_version=0, max_supported_version=1),
    )
    return RegisterBrokerRecord(
        broker_id=7, incarnation_id=UUID(int=1), broker_epoch=1, end_points=(), features=features
    )


def old_controller() -> RegisterControllerRecord:
    features = old_broker().features
    return RegisterControllerRecord(
        controller_id=8, incarnation_id=UUID(int=1), end_points=(), features=features
    )


def test_what_a_controller_does_not_support_is_refused() -> None:
    update = FeatureUpdate(METADATA_VERSION, 28, UP)
    assert update_features(cluster(), [update], 1).records
    with pytest.raises(InvalidUpdateVersion, match="Controller 8 only supports versions 7-25"):
        update_features(cluster(old_controller()), [update], 1)


def test_levels_are_lowered_and_raised() -> None:
    updates = [FeatureUpdate(TRANSACTION_VERSION, 1, DOWN), FeatureUpdate(GROUP_VERSION, 0, DOWN)]
    records = update_features(cluster(), updates, 1).records
    assert records == [
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=1),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=0),
    ]
    lowered = cluster(*records)
    assert GROUP_VERSION not in lowered.features
    (record,) = update_features(lowered, [FeatureUpdate(GROUP_VERSION, 1, UP)], 1).records
    assert cluster(*records, record).features[GROUP_VERSION] == 1


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (FeatureUpdate(TRANSACTION_VERSION, 1, UP), "without setting the upgrade type"),
        (FeatureUpdate(TRANSACTION_VERSION, 3, UP), "Local controller 1 only supports versions 0-2"),
        (FeatureUpdate(TRANSACTION_VERSION, -1, DOWN), "cannot be less than 0"),
        (FeatureUpdate(TRANSACTION_VERSION, 2, 9), "does not support the given upgrade type"),
        (FeatureUpdate(METADATA_VERSION, 0, DOWN), "Local controller 1 only supports versions 23-30"),
        (FeatureUpdate("streams.version", 1, UP), "Local controller 1 does not support this feature"),
        (FeatureUpdate("streams.version", 0, DOWN), "Feature streams.version not found"),
    ],
)
def test_what_is_refused(update: FeatureUpdate, message: str) -> None:
    good = FeatureUpdate(GROUP_VERSION, 0, DOWN)
    with pytest.raises(InvalidUpdateVersion, match=message):
        update_features(cluster(), [good, update], 1)


def test_a_downgrade_does_not_raise() -> None:
    lowered = cluster(FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=1))
    with pytest.raises(InvalidUpdateVersion, match="Can't downgrade to a newer version"):
        update_features(lowered, [FeatureUpdate(TRANSACTION_VERSION, 2, DOWN)], 1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (DOWN, "from 30 to 29. Refusing to perform the requested downgrade because it might delete"),
        (UpgradeType.UNSAFE_DOWNGRADE, "from 30 to 29. Unsafe metadata downgrade is not supported"),
    ],
)
def test_metadata_is_not_lost_by_a_downgrade(how: UpgradeType, message: str) -> None:
    newest = cluster(FeatureLevelRecord(name=METADATA_VERSION, feature_level=30))
    with pytest.raises(InvalidUpdateVersion, match=f"Unsupported metadata.version downgrade {message}"):
        update_features(newest, [FeatureUpdate(METADATA_VERSION, 29, how)], 1)
    older = cluster(FeatureLevelRecord(name=METADATA_VERSION, feature_level=29))
    assert update_features(older, [FeatureUpdate(METADATA_VERSION, 23, DOWN)], 1).records


def test_every_broker_must_support_a_level() -> None:
    image = cluster(FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=0), old_broker())
    assert update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 1, UP)], 1).records
    with pytest.raises(InvalidUpdateVersion, match="Broker 7 only supports versions 0-1"):
        update_features(image, [FeatureUpdate(TRANSACTION_VERSION, 2, UP)], 1)
    with pytest.raises(InvalidUpdateVersion, match="Broker 7 does not support this feature"):
        update_features(image, [FeatureUpdate(GROUP_VERSION, 1, UP)], 1)
