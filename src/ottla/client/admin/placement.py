"""Where replicas might be: new places proposed to whoever plans to move them. No broker is asked here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ottla.client.admin.topics import Partition


class TooFewBrokers(ValueError):
    def __init__(self, partition: Partition, replicas: int, brokers: int) -> None:
        super().__init__(
            f"{partition} has {replicas} replicas, and there are only {brokers} brokers for them"
        )
        self.partition = partition


def propose(
    current: Mapping[Partition, Sequence[int]], racks: Mapping[int, str | None], start: int
) -> dict[Partition, tuple[int, ...]]:
    """New replicas on the brokers of `racks`, as many as now, leaders and followers spread evenly.

    Each partition begins a broker further than the one before. Replicas of a partition are in different racks
    as far as there are racks. `start` is the broker, in that order, to begin with. TooFewBrokers.
    """
    ordered = _alternating(racks)
    proposed: dict[Partition, tuple[int, ...]] = {}
    for turn, (partition, replicas) in enumerate(sorted(current.items()), start):
        if len(replicas) > len(ordered):
            raise TooFewBrokers(partition, len(replicas), len(ordered))
        # With each round the followers shift, or the same brokers would always follow one leader.
        leader, shift = turn % len(ordered), turn // len(ordered)
        others = [ordered[(leader + 1 + step) % len(ordered)] for step in range(len(ordered) - 1)]
        if others:
            others = others[shift % len(others) :] + others[: shift % len(others)]
        proposed[partition] = _spread([ordered[leader], *others], racks, len(replicas))
    return proposed


def propose_fewest_moves(
    current: Mapping[Partition, Sequence[int]], racks: Mapping[int, str | None]
) -> dict[Partition, tuple[int, ...]]:
    """As `propose`, but what is on these brokers already stays: only the others' replicas get new places, on
    whoever has the fewest."""
    held = Counter(dict.fromkeys(racks, 0))
    for replicas in current.values():
        held.update(broker for broker in replicas if broker in racks)
    proposed: dict[Partition, tuple[int, ...]] = {}
    for partition, replicas in sorted(current.items()):
        if len(replicas) > len(racks):
            raise TooFewBrokers(partition, len(replicas), len(racks))
        new: list[int] = [broker for broker in replicas if broker in racks]
        for place, broker in enumerate(replicas):
            if broker not in racks:
                taken = {racks[each] for each in new}
                chosen = min(
                    (each for each in racks if each not in new),
                    key=lambda each: (racks[each] is not None and racks[each] in taken, held[each], each),
                )
                held[chosen] += 1
                new.insert(place, chosen)
        proposed[partition] = tuple(new)
    return proposed


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers with neighbours from other racks."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker] or ""].append(broker)
    ordered: list[int] = []
    while any(by_rack.values()):
        ordered += [brokers.pop(0) for _, brokers in sorted(by_rack.items()) if brokers]
    return ordered


def _spread(candidates: Sequence[int], racks: Mapping[int, str | None], count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    for new_racks_only in (True, False):
        for broker in candidates:
            taken = {racks[each] for each in chosen}
            if (
                len(chosen) < count
                and broker not in chosen
                and not (new_racks_only and racks[broker] in taken)
            ):
                chosen.append(broker)
    return tuple(chosen)
