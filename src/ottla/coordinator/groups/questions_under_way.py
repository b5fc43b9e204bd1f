"""Asking a transaction's coordinator takes a while, and the transaction may end meanwhile.

What is written after the end would be part of no transaction and stay open for good. So whoever asks holds a
token, and the end of a transaction voids the tokens of its producer.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.markers import Marker
from ottla.records.producer import ProducerIdentity


class _Token:
    """Compared by identity."""

    __slots__ = ("epoch", "is_own_epoch")

    def __init__(self, epoch: int, is_own_epoch: bool) -> None:
        self.epoch = epoch
        self.is_own_epoch = is_own_epoch

    def is_voided_by(self, marker: Marker) -> bool:
        if marker.producer_epoch == self.epoch:
            # Where every transaction has its own epoch, a marker has the one that the next begins with.
            return not self.is_own_epoch
        return marker.producer_epoch > self.epoch


class Question(NamedTuple):
    """Whether a partition is part of a producer's transaction."""

    partition: int
    producer_id: int
    token: _Token


class QuestionsUnderWay:
    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[tuple[int, int], set[_Token]] = {}

    def begin(self, partition: int, producer: ProducerIdentity, *, is_own_epoch: bool) -> Question:
        token = _Token(producer.epoch, is_own_epoch)
        self._under_way.setdefault((partition, producer.id), set()).add(token)
        return Question(partition, producer.id, token)

    def finish(self, question: Question) -> bool:
        """Whether the answer still holds."""
        partition, producer_id, token = question
        tokens = self._under_way.get((partition, producer_id), set())
        if token not in tokens:
            return False
        tokens.remove(token)
        if not tokens:
            del self._under_way[partition, producer_id]
        return True

    def end(self, partition: int, marker: Marker) -> None:
        key = (partition, marker.producer_id)
        left = {token for token in self._under_way.get(key, ()) if not token.is_voided_by(marker)}
        if left:
            self._under_way[key] = left
        else:
            self._under_way.pop(key, None)
