"""Records of a worker's topics that nobody expected are left out, and those of old workers are understood."""

from __future__ import annotations

from ottla.connect.state.configs import Configs, ConnectorChanged, TargetState, connector_entries
from ottla.connect.state.entries import Entry, entry
from ottla.connect.state.offsets import Offsets
from ottla.connect.state.statuses import State, Status, Statuses, status_entry


def test_what_cannot_be_read_is_left_out() -> None:
    configs = Configs()
    for key, value in [(b"connector-a", b"{"), (b"connector-a", b"[]"), (b"task-", b"{}"), (b"what", b"{}")]:
        assert configs.apply(Entry(key, value)) is None
    assert configs.apply(entry("connector-a", {"no": "properties"})) is None
    assert configs.connectors == {}


def test_a_target_state_of_an_old_worker_counts() -> None:
    configs = Configs()
    for each in connector_entries("a", {"x": "y"}):
        configs.apply(each)
    assert configs.apply(entry("target-state-a", {"state": "PAUSED"})) == ConnectorChanged("a")
    assert configs.connectors["a"].target is TargetState.PAUSED
    assert configs.apply(entry("target-state-a", {"state": "DANCING"})) is None
    assert configs.apply(entry("target-state-a", None)) == ConnectorChanged("a")
    assert configs.connectors["a"].target is TargetState.STARTED


def test_a_name_may_have_dashes_and_digits() -> None:
    configs = Configs()
    for each in connector_entries("a-1", {"x": "y"}):
        configs.apply(each)
    configs.apply(entry("task-a-1-0", {"properties": {"t": "0"}}))
    configs.apply(entry("commit-a-1", {"tasks": 1}))
    assert configs.connectors["a-1"].tasks == ({"t": "0"},)


def test_an_offset_keeps_the_key_that_another_worker_wrote() -> None:
    offsets = Offsets()
    theirs = Entry(b'["c",{"b":1,"a":2}]', b'{"at":3}')
    offsets.apply(theirs)
    assert offsets.get("c", {"a": 2, "b": 1}) == {"at": 3}
    assert offsets.entry("c", {"a": 2, "b": 1}, None) == Entry(theirs.key, None)
    offsets.apply(Entry(theirs.key, None))
    assert offsets.of("c") == []
    for nonsense in (b"x", b"[1]", b'["c"]', b"{}"):
        offsets.apply(Entry(nonsense, b"{}"))


def test_statuses_come_and_go() -> None:
    statuses = Statuses()
    statuses.apply(status_entry("c", Status(State.FAILED, "w", 1, "why", "1")))
    assert statuses.connectors["c"].shown() == {
        "state": "FAILED",
        "worker_id": "w",
        "trace": "why",
        "version": "1",
    }
    statuses.apply(Entry(b"status-connector-c", b'{"state":"DANCING"}'))
    statuses.apply(status_entry("c", Status(State.DESTROYED, "w")))
    assert statuses.connectors == {}
