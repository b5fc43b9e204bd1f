"""What a leader makes of its followers: the high watermark, and who is in sync."""

from __future__ import annotations

from uuid import UUID

from ottla.replication.commits import Commits
from ottla.replication.leadership import IsrProposal, IsrState, Leadership
from ottla.wire.errors import KafkaError, NotLeaderOrFollower

TOPIC = UUID(int=7)
LAG = 30.0
ME = 1


def leading(
    isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), end: int = 10
) -> Leadership:
    made = Leadership(ME)
    made.assign(IsrState(4, 7, isr), replicas, end, now=0.0)
    return made


def fetch(leader: Leadership, replica: int, offset: int, leader_end: int, now: float) -> None:
    leader.followers[replica].fetched(offset, 0, 100 + replica, leader_end, now)


def upto(leader: Leadership, end: int, now: float, *eligible: int) -> int:
    return leader.committed_upto(end, eligible, now, LAG)


def shrinking(leader: Leadership, end: int, now: float) -> IsrProposal | None:
    return leader.shrinking(TOPIC, 0, end, now, LAG, 101)


def expansion(leader: Leadership, replica: int, high_watermark: int) -> IsrProposal | None:
    return leader.expansion(TOPIC, 0, replica, high_watermark, 101)


def test_committed_is_what_all_in_sync_have() -> None:
    leader = leading()
    assert upto(leader, 12, 1.0) < 0, "nobody has been heard of"
    fetch(leader, 2, 12, 12, 1.0)
    fetch(leader, 3, 11, 12, 1.0)
    assert upto(leader, 12, 1.0) == 11
    fetch(leader, 3, 12, 12, 1.1)
    assert upto(leader, 12, 1.1) == 12


def test_who_is_not_in_sync_is_waited_for_only_while_it_is_about_to_join() -> None:
    leader = leading(isr=(1, 2))
    fetch(leader, 2, 12, 12, 1.0)
    fetch(leader, 3, 5, 12, 1.0)
    assert upto(leader, 12, 1.0, 3) == 12, "it is far behind"
    fetch(leader, 3, 12, 12, 2.0)
    assert upto(leader, 14, 2.0, 3) == 12
    fetch(leader, 2, 14, 14, 2.0)
    assert upto(leader, 14, 2.0, 3) == 12, "it has all but caught up"
    assert upto(leader, 14, 2.0) == 14, "it may not join"


def test_a_follower_that_lags_too_long_is_left_out_once_the_controller_agrees() -> None:
    leader = leading()
    fetch(leader, 2, 12, 12, 20.0)
    fetch(leader, 3, 11, 12, 20.0)
    assert shrinking(leader, 12, 29.0) is None
    asked = shrinking(leader, 12, 31.0)
    assert asked == IsrProposal(TOPIC, 0, 4, 7, ((1, 101), (2, 102)))
    assert upto(leader, 12, 31.0) == 11, "it could still be elected"
    assert shrinking(leader, 12, 90.0) is None, "one at a time"
    assert leader.agreed(asked, IsrState(4, 8, (1, 2)))
    assert upto(leader, 12, 31.0) == 12
    assert not leader.agreed(asked, IsrState(4, 8, (1, 2)))


def test_who_keeps_up_with_a_busy_leader_is_not_left_out() -> None:
    leader = leading()
    end = 10
    for second in range(100):
        fetch(leader, 2, end, end + 5, float(second))
        fetch(leader, 3, end, end + 5, float(second))
        end += 5
        assert shrinking(leader, end, second + 0.5) is None


def test_who_had_nothing_to_ask_for_is_not_late() -> None:
    leader = leading()
    fetch(leader, 2, 10, 10, 1.0)
    fetch(leader, 3, 10, 10, 1.0)
    leader.appended(10, 1000.0)
    assert shrinking(leader, 11, 1001.0) is None
    asked = shrinking(leader, 11, 1031.0)
    assert asked is not None and asked.isr == ((1, 101),)


def test_a_follower_joins_when_it_has_what_is_committed_and_what_the_leader_began_with() -> None:
    leader = leading(isr=(1, 2), end=10)
    fetch(leader, 3, 9, 12, 1.0)
    assert expansion(leader, 3, 8) is None, "records of the leader before may be committed"
    fetch(leader, 3, 10, 12, 1.0)
    assert expansion(leader, 3, 11) is None
    asked = expansion(leader, 3, 10)
    assert asked == IsrProposal(TOPIC, 0, 4, 7, ((1, 101), (2, 102), (3, 103))) or (
        asked is not None and asked.isr == ((1, 101), (2, -1), (3, 103))
    )
    assert leader.widest_isr == {1, 2, 3}
    fetch(leader, 2, 12, 12, 1.0)
    assert upto(leader, 12, 1.0) == 10, "waited for before the controller has agreed"
    leader.refused(asked)
    assert leader.widest_isr == {1, 2}


def test_what_a_follower_had_in_an_earlier_epoch_commits_nothing_in_a_later_one() -> None:
    leader = leading()
    fetch(leader, 2, 12, 12, 1.0)
    fetch(leader, 3, 10, 12, 1.0)
    assert upto(leader, 12, 1.0) == 10
    # In epoch 5 another one led, and 2 cut off what it had beyond 10: this leader was told of 6 at once.
    leader.assign(IsrState(6, 9, (1, 2, 3)), (1, 2, 3), 12, now=2.0)
    fetch(leader, 3, 12, 12, 2.1)
    assert upto(leader, 12, 2.1) < 0, "2 has not been heard of since"
    fetch(leader, 2, 10, 12, 2.2)
    assert upto(leader, 12, 2.2) == 10
    assert shrinking(leader, 12, 2.0 + LAG) is None, "time began anew"


def test_metadata_overtakes_a_proposal_and_an_answer_overtakes_metadata() -> None:
    leader = leading(isr=(1, 2))
    fetch(leader, 3, 12, 12, 1.0)
    asked = expansion(leader, 3, 12)
    assert asked is not None
    leader.assign(IsrState(4, 7, (1, 2)), (1, 2, 3), 12, 2.0)
    assert leader.is_current(asked), "nothing new"
    leader.assign(IsrState(4, 8, (1, 2)), (1, 2, 3), 12, 2.0)
    assert not leader.is_current(asked)
    assert not leader.agreed(asked, IsrState(4, 9, (1, 2, 3)))
    again = expansion(leader, 3, 12)
    assert again is not None and leader.agreed(again, IsrState(4, 9, (1, 2, 3)))
    leader.assign(IsrState(4, 8, (1, 2)), (1, 2, 3), 12, 3.0)
    assert leader.isr == (1, 2, 3)


def test_those_who_wait_are_told_in_order_or_that_nobody_knows() -> None:
    commits = Commits()
    told: list[tuple[str, KafkaError | None]] = []
    for name, end in (("c", 30), ("a", 10), ("b", 20), ("d", 40)):
        commits.wait(end, lambda error, name=name: told.append((name, error)))  # type: ignore[misc]
    commits.advance(20)
    assert told == [("a", None), ("b", None)]
    over = NotLeaderOrFollower("over")
    commits.fail(over)
    assert told[2:] == [("c", over), ("d", over)]
    commits.wait(5, lambda error: told.append(("late", error)))
    assert told[-1] == ("late", over)


def test_what_nobody_waits_for_any_more_is_not_kept() -> None:
    commits = Commits()
    waiters = [commits.wait(end, lambda error: None) for end in range(1, 1001)]
    for waiter in waiters[:999]:
        waiter.cancel()
    assert len(commits) == 1
    assert len(commits._heap) <= 3
    commits.advance(1000)
    assert len(commits) == 0
