"""Server-side assignors: complete, exclusive, balanced, sticky."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.assignors import MemberSpec, assign_range, assign_uniform
from ottla.coordinator.groups.commands import Partitions

T1, T2, T3 = (uuid.UUID(int=n) for n in (1, 2, 3))


def specs(
    members: dict[str, set[uuid.UUID]], previous: dict[str, Partitions] | None = None
) -> dict[str, MemberSpec]:
    return {m: MemberSpec(frozenset(t), (previous or {}).get(m, {})) for m, t in members.items()}


def sizes(assignment: dict[str, Partitions]) -> dict[str, int]:
    return {m: sum(map(len, parts.values())) for m, parts in assignment.items()}


def owners(assignment: dict[str, Partitions]) -> dict[tuple[uuid.UUID, int], str]:
    result: dict[tuple[uuid.UUID, int], str] = {}
    for member, topics in assignment.items():
        for topic, parts in topics.items():
            for part in parts:
                assert (topic, part) not in result, "two owners"
                result[topic, part] = member
    return result


def test_range_gives_contiguous_ranges_of_each_topic() -> None:
    members = specs({"a": {T1, T2}, "b": {T1, T2}})
    assert assign_range(members, {T1: 3, T2: 3}) == {
        "a": {T1: {0, 1}, T2: {0, 1}},
        "b": {T1: {2}, T2: {2}},
    }


def test_range_puts_static_members_first_by_instance_id() -> None:
    members = {
        "z": MemberSpec(frozenset((T1,)), {}, "instance-1"),
        "y": MemberSpec(frozenset((T1,)), {}, "instance-2"),
        "a": MemberSpec(frozenset((T1,)), {}),
    }
    assert assign_range(members, {T1: 3}) == {"z": {T1: {0}}, "y": {T1: {1}}, "a": {T1: {2}}}


def test_surplus_members_idle() -> None:
    members = specs({name: {T1} for name in "abcdef"})
    for assign in (assign_range, assign_uniform):
        assert sorted(sizes(assign(members, {T1: 4})).values()) == [0, 0, 1, 1, 1, 1]


def test_uniform_moves_no_more_than_a_newcomer_needs() -> None:
    before = assign_uniform(specs({"a": {T1}, "b": {T1}}), {T1: 6})
    after = assign_uniform(specs({"a": {T1}, "b": {T1}, "c": {T1}}, before), {T1: 6})
    assert sizes(after) == {"a": 2, "b": 2, "c": 2}
    for member in "ab":
        assert after[member][T1] < before[member][T1]


def test_uniform_gives_a_leavers_partitions_to_the_others_only() -> None:
    before = assign_uniform(specs({"a": {T1}, "b": {T1}, "c": {T1}}), {T1: 6})
    after = assign_uniform(specs({"a": {T1}, "b": {T1}}, before), {T1: 6})
    for member in "ab":
        assert after[member][T1] > before[member][T1]


def test_uniform_balances_overlapping_subscriptions_topic_by_topic() -> None:
    members = specs({"a": {T1}, "b": {T1, T2}, "c": {T2, T3}})
    load = sizes(assign_uniform(members, {T1: 4, T2: 4, T3: 1}))
    assert abs(load["a"] - load["b"]) <= 1
    assert abs(load["b"] - load["c"]) <= 1


def test_partitions_and_topics_that_are_gone_are_forgotten() -> None:
    previous: dict[str, Partitions] = {"a": {T1: frozenset({0, 9}), T2: frozenset({0})}, "b": {}}
    result = assign_uniform(specs({"a": {T1}, "b": {T1}}, previous), {T1: 2})
    assert owners(result).keys() == {(T1, 0), (T1, 1)}
    assert 0 in result["a"][T1]


TOPICS = [T1, T2, T3]
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=8
)
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})


@given(first=SUBSCRIPTIONS, second=SUBSCRIPTIONS, counts=COUNTS, grown=COUNTS)
def test_assignments_are_complete_exclusive_and_within_subscriptions(
    first: dict[str, set[uuid.UUID]],
    second: dict[str, set[uuid.UUID]],
    counts: dict[uuid.UUID, int],
    grown: dict[uuid.UUID, int],
) -> None:
    for assign in (assign_uniform, assign_range):
        before = assign(specs(first), counts)
        after = assign(specs(second, before), grown)
        for result, members, partitions in ((before, first, counts), (after, second, grown)):
            assert result.keys() == members.keys()
            subscribed = set().union(*members.values())
            assert owners(result).keys() == {
                (topic, part) for topic in subscribed for part in range(partitions[topic])
            }
            assert all(result[m].keys() <= topics for m, topics in members.items())


@given(
    members=st.integers(1, 8),
    more=st.integers(1, 8),
    counts=COUNTS,
)
def test_uniform_balances_equal_subscriptions_perfectly_and_sticks(
    members: int, more: int, counts: dict[uuid.UUID, int]
) -> None:
    names = [f"m{n}" for n in range(max(members, more))]
    before = assign_uniform(specs({m: set(TOPICS) for m in names[:members]}), counts)
    after = assign_uniform(specs({m: set(TOPICS) for m in names[:more]}, before), counts)
    for result in (before, after):
        load = sizes(result).values()
        assert max(load) - min(load) <= 1
    again = assign_uniform(specs({m: set(TOPICS) for m in names[:more]}, after), counts)
    assert again == after, "a balanced assignment stays"
    kept = sum(owners(before).get(key) == member for key, member in owners(after).items())
    total = sum(counts.values())
    quota_after = sizes(after)
    possible = sum(min(size, quota_after.get(m, 0)) for m, size in sizes(before).items())
    assert kept >= possible - min(members, more) and kept <= total
