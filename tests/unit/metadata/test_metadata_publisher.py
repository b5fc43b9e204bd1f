"""Committed batches become images; subscribers hear what changed, whoever leads the quorum."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.metadata.change import MetadataChange
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.foreign_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import CommittedBatch, MetadataPublisher
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
    RemoveTopicRecord,
    TopicRecord,
)

A, B, C = (TopicRecord(name=name, topic_id=UUID(int=1000 + at)) for at, name in enumerate("abc"))


def batch(last_offset: int, *records: MetadataRecord, epoch: int = 1) -> CommittedBatch:
    return CommittedBatch(last_offset, epoch, records)


class Heard:
    def __init__(self, publisher: MetadataPublisher) -> None:
        self.changes: list[MetadataChange] = []
        publisher.subscribe(self.changes.append)

    def topics(self) -> list[list[str]]:
        told = [sorted(topic.name for topic in change.topics) for change in self.changes]
        self.changes.clear()
        return told


def test_each_batch_is_a_change_on_top_of_the_one_before() -> None:
    publisher = MetadataPublisher()
    heard = Heard(publisher)
    publisher.on_commit([batch(0, A), batch(2, B, C, epoch=2)])
    first, second = heard.changes
    assert (first.before.offset, first.after.offset, first.after.epoch) == (-1, 0, 1)
    assert (second.after.offset, second.after.epoch) == (2, 2)
    assert second.before is first.after and second.after is publisher.image
    assert heard.topics() == [["a"], ["b", "c"]]


def test_what_is_loaded_before_anybody_listens_becomes_one_image() -> None:
    publisher = MetadataPublisher()
    publisher.on_commit([batch(0, A), batch(1, B), batch(2, RemoveTopicRecord(topic_id=A.topic_id))])
    assert list(publisher.image.topics) == ["b"]
    assert publisher.image.offset == 2


def test_a_control_batch_moves_the_offset_alone() -> None:
    publisher = MetadataPublisher()
    publisher.on_commit([batch(0, A), batch(1, epoch=5)])
    assert (publisher.image.offset, publisher.image.epoch) == (1, 5)


def test_a_snapshot_replaces_everything_and_subscribers_hear_the_difference() -> None:
    publisher = MetadataPublisher()
    publisher.on_commit([batch(1, A, B), batch(3, BeginTransactionRecord(), C)])
    heard = Heard(publisher)
    setting = ConfigRecord(resource_type=2, resource_name="b", name="retention.ms", value="5")
    image = publisher.image.apply_all([RemoveTopicRecord(topic_id=A.topic_id), C, setting], 90, 7)
    publisher.on_snapshot(image)
    assert publisher.image is image
    [change] = heard.changes
    assert change.after is image and list(change.configs) == [(2, "b")]
    assert heard.topics() == [["a", "c"]]
    # What was pending is in the snapshot, or was aborted.
    assert not publisher.in_transaction
    publisher.on_commit([batch(91, A, epoch=7)])
    assert sorted(publisher.image.topics) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("end", "left"), [(EndTransactionRecord(), ["a", "b", "c"]), (AbortTransactionRecord(), ["a", "c"])]
)
def test_a_transaction_counts_as_a_whole_however_many_batches_it_has(
    end: MetadataRecord, left: list[str]
) -> None:
    publisher = MetadataPublisher()
    heard = Heard(publisher)
    publisher.on_commit([batch(1, A, BeginTransactionRecord()), batch(2, B, epoch=2)])
    # A snapshot of an image that was further would lack what is pending.
    assert (publisher.image.offset, publisher.image.epoch, publisher.in_transaction) == (0, 1, True)
    assert list(publisher.image.topics) == ["a"]
    publisher.on_commit([batch(4, end, C, epoch=2)])
    assert (publisher.image.offset, publisher.image.epoch, publisher.in_transaction) == (4, 2, False)
    assert sorted(publisher.image.topics) == left
    assert sorted(name for names in heard.topics() for name in names) == left


def test_versions_that_are_not_understood_are_refused_unless_they_are_history() -> None:
    old, new, newer = (FeatureLevelRecord(name=METADATA_VERSION, feature_level=n) for n in (20, 27, 99))
    publisher = MetadataPublisher()
    publisher.on_snapshot(MetadataImage().apply_all([old], 0, 1))
    publisher.on_commit([batch(1, new)])
    publisher.loaded()
    with pytest.raises(MetadataRecordError, match=r"metadata\.version is 99"):
        publisher.on_commit([batch(2, newer)])
    with pytest.raises(MetadataRecordError, match=r"metadata\.version is 20"):
        publisher.on_snapshot(replace(publisher.image, features={METADATA_VERSION: 20}))
