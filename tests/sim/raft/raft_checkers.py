"""What must never be seen in a quorum, named after what is forbidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Violation(AssertionError):
    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Checkers:
    def __init__(self) -> None:
        self.leader_of: dict[int, int] = {}
        self.committed: list[Any] = []
        """By offset, whoever said so first."""
        self._committed_at: dict[int, int] = {}
        """By each node since it started."""
        self._values: dict[tuple[int, int], Any] = {}
        """By offset and epoch."""
        self.warnings: list[str] = []

    def started(self, node_id: int) -> None:
        self._committed_at[node_id] = 0

    def leads(self, node_id: int, epoch: int, entries: Sequence[Any]) -> None:
        if epoch in self.leader_of:
            raise Violation(
                "TwoLeadersInAnEpoch", f"epoch {epoch} was led by {self.leader_of[epoch]}, now by {node_id}"
            )
        self.leader_of[epoch] = node_id
        self._check_kept(node_id, entries, f"is elected in epoch {epoch}")

    def appended(self, node_id: int, offset: int, entry: tuple[int, Any]) -> None:
        epoch, value = entry
        known = self._values.setdefault((offset, epoch), value)
        if known != value:
            raise Violation(
                "DivergentLogs",
                f"node {node_id} has {value!r} at {offset} of epoch {epoch}, others {known!r}",
            )

    def truncates(self, node_id: int, end_offset: int, entries: Sequence[Any]) -> None:
        for offset in range(end_offset, min(len(self.committed), len(entries))):
            if entries[offset] == self.committed[offset]:
                raise Violation(
                    "TruncatedBelowCommitted",
                    f"node {node_id} cuts its log at {end_offset}, {offset} is committed",
                )

    def installs(self, node_id: int, entries: Sequence[Any]) -> None:
        if list(entries) != self.committed[: len(entries)]:
            raise Violation("DivergentLogs", f"node {node_id} has a snapshot that was never committed")

    def commits(self, node_id: int, high_watermark: int, entries: Sequence[Any]) -> None:
        before = self._committed_at[node_id]
        if high_watermark < before:
            raise Violation("HighWatermarkGoesBack", f"node {node_id}: from {before} to {high_watermark}")
        if high_watermark > len(entries):
            raise Violation(
                "CommittedBeyondTheLog", f"node {node_id}: {high_watermark}, the log has {len(entries)}"
            )
        self._committed_at[node_id] = high_watermark
        for offset in range(before, high_watermark):
            if offset == len(self.committed):
                self.committed.append(entries[offset])
            elif entries[offset] != self.committed[offset]:
                raise Violation(
                    "CommittedEntryLost",
                    f"node {node_id} commits {entries[offset]} at {offset}, it was {self.committed[offset]}",
                )

    def check_all_have_committed(self, logs: Mapping[int, Sequence[Any]]) -> None:
        for node_id, entries in logs.items():
            self._check_kept(node_id, entries, "is caught up")

    def _check_kept(self, node_id: int, entries: Sequence[Any], when: str) -> None:
        for offset, entry in enumerate(self.committed):
            if offset >= len(entries) or entries[offset] != entry:
                raise Violation(
                    "CommittedEntryLost", f"node {node_id} {when} and has not {entry} at {offset}"
                )

    def warned(self, text: str) -> None:
        """Of what a correct quorum never meets."""
        self.warnings.append(text)
        if "lead it, too" in text:
            raise Violation("TwoLeadersInAnEpoch", text)
