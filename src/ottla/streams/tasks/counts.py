"""What a task counts while it works: records by node, those left out and why, those that failed."""

from __future__ import annotations

from collections import Counter, defaultdict


class TaskCounts:
    __slots__ = ("dropped", "failed", "records")

    def __init__(self) -> None:
        # By node.
        self.records: defaultdict[str, int] = defaultdict(int)
        # By node and reason: left out by the rules of an operator, such as late ones.
        self.dropped: defaultdict[tuple[str, str], int] = defaultdict(int)
        # By node and what became of them: skip or dead-letter.
        self.failed: defaultdict[tuple[str, str], int] = defaultdict(int)

    def dropped_by_reason(self) -> Counter[str]:
        reasons: Counter[str] = Counter()
        for (_, reason), count in self.dropped.items():
            reasons[reason] += count
        return reasons
