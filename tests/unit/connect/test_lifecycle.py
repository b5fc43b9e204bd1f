"""What a worker does about connectors, step by step, without a thread or a topic."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.connect.state.configs import (
    Configs,
    RestartAsked,
    TargetState,
    connector_entries,
    removal_entries,
    target_entry,
    task_entries,
)
from ottla.connect.state.entries import Entry, TaskId
from ottla.connect.state.lifecycle import (
    Action,
    ComputeTasks,
    Lifecycle,
    Pause,
    Publish,
    RemoveTasks,
    Resume,
    Start,
    Stop,
)
from ottla.connect.state.statuses import State

CONFIG = {"connector.class": "x", "name": "c"}
TASK = TaskId("c", 0)


def apply(configs: Configs, entries: Sequence[Entry]) -> None:
    for entry in entries:
        configs.apply(entry)


def started() -> tuple[Configs, Lifecycle]:
    """A connector and its task, both running, as runs 1 and 2."""
    configs = Configs()
    lifecycle = Lifecycle(configs)
    apply(configs, connector_entries("c", CONFIG))
    assert lifecycle.reconcile() == [Start("c", 1, CONFIG, None, False)]
    assert lifecycle.started("c", 1) == [Publish("c", State.RUNNING), ComputeTasks("c")]
    apply(configs, task_entries("c", [CONFIG]))
    assert lifecycle.reconcile() == [Start(TASK, 2, CONFIG, CONFIG, False)]
    assert lifecycle.started(TASK, 2) == [Publish(TASK, State.RUNNING)]
    assert lifecycle.reconcile() == []
    return configs, lifecycle


def test_pause_and_resume_reach_connector_and_task() -> None:
    configs, lifecycle = started()
    apply(configs, [target_entry("c", TargetState.PAUSED)])
    assert lifecycle.reconcile() == [
        Pause("c", 1),
        Publish("c", State.PAUSED),
        Pause(TASK, 2),
        Publish(TASK, State.PAUSED),
    ]
    apply(configs, [target_entry("c", TargetState.STARTED)])
    assert lifecycle.reconcile() == [
        Resume("c", 1),
        Publish("c", State.RUNNING),
        ComputeTasks("c"),
        Resume(TASK, 2),
        Publish(TASK, State.RUNNING),
    ]


def test_a_pause_that_comes_while_a_task_starts_is_not_forgotten() -> None:
    configs, lifecycle = started()
    again = RestartAsked("c", only_failed=False, include_tasks=True)
    assert Stop(TASK, 2) in lifecycle.restart(again, ())
    assert Start(TASK, 3, CONFIG, CONFIG, False) in lifecycle.stopped(TASK, 2)
    apply(configs, [target_entry("c", TargetState.PAUSED)])
    assert lifecycle.reconcile() == []
    assert lifecycle.started(TASK, 3) == [
        Publish(TASK, State.RUNNING),
        Pause(TASK, 3),
        Publish(TASK, State.PAUSED),
    ]


def test_a_stopped_connector_has_no_tasks() -> None:
    configs, lifecycle = started()
    apply(configs, [target_entry("c", TargetState.STOPPED)])
    assert lifecycle.reconcile() == [Stop("c", 1), Stop(TASK, 2)]
    assert lifecycle.stopped("c", 1) == [Publish("c", State.STOPPED), RemoveTasks("c")]
    assert lifecycle.stopped(TASK, 2) == [Publish(TASK, State.DESTROYED), RemoveTasks("c")]
    apply(configs, task_entries("c", []))
    assert lifecycle.reconcile() == []
    apply(configs, removal_entries("c"))
    assert lifecycle.reconcile() == [Publish("c", State.DESTROYED)]


def test_one_created_stopped_never_starts() -> None:
    configs = Configs()
    lifecycle = Lifecycle(configs)
    apply(configs, connector_entries("c", CONFIG, TargetState.STOPPED))
    assert lifecycle.reconcile() == [Publish("c", State.STOPPED)]


def test_what_is_removed_while_it_starts_is_stopped_and_forgotten() -> None:
    configs = Configs()
    lifecycle = Lifecycle(configs)
    apply(configs, connector_entries("c", CONFIG))
    lifecycle.reconcile()
    apply(configs, removal_entries("c"))
    assert lifecycle.reconcile() == [Stop("c", 1)]
    assert not lifecycle.is_current("c", 1)
    assert lifecycle.started("c", 1) == []
    assert lifecycle.stopped("c", 1) == [Publish("c", State.DESTROYED)]


def test_a_failed_task_waits_for_a_restart_or_another_configuration() -> None:
    configs, lifecycle = started()
    assert lifecycle.failed(TASK, 2, "trace") == [Publish(TASK, State.FAILED, "trace")]
    assert lifecycle.reconcile() == []
    # Nothing that it reports later counts.
    assert lifecycle.restart(RestartAsked("c", True, True), {TASK}) == [
        Publish(TASK, State.RESTARTING),
        Start(TASK, 3, CONFIG, CONFIG, False),
    ]
    assert lifecycle.failed(TASK, 2, "late") == []
    assert lifecycle.started(TASK, 3) == [Publish(TASK, State.RUNNING)]
    lifecycle.failed(TASK, 3, "again")
    changed = {**CONFIG, "file": "other"}
    apply(configs, [*connector_entries("c", changed), *task_entries("c", [changed])])
    assert Start(TASK, 4, changed, changed, False) in lifecycle.reconcile()


def test_a_new_configuration_replaces_what_runs_once_that_has_stopped() -> None:
    configs, lifecycle = started()
    changed = {**CONFIG, "file": "other"}
    apply(configs, connector_entries("c", changed))
    assert lifecycle.reconcile() == [Stop("c", 1)]
    assert lifecycle.stopped("c", 1) == [Start("c", 3, changed, None, False)]
    # The task goes on with what it was made from, until the connector says what is new.
    apply(configs, task_entries("c", [changed]))
    assert lifecycle.reconcile() == [Stop(TASK, 2)]
    assert lifecycle.stopped(TASK, 2) == [Start(TASK, 4, changed, changed, False)]


def test_fewer_tasks_end_the_ones_too_many() -> None:
    configs, lifecycle = started()
    apply(configs, task_entries("c", []))
    assert lifecycle.reconcile() == [Stop(TASK, 2)]
    assert lifecycle.stopped(TASK, 2) == [Publish(TASK, State.DESTROYED)]


def test_what_goes_to_another_worker_is_stopped_and_told_so() -> None:
    _, lifecycle = started()
    lifecycle.is_assigned = lambda unit: unit == "c"
    assert lifecycle.reconcile() == [Stop(TASK, 2)]
    assert lifecycle.stopped(TASK, 2) == [Publish(TASK, State.UNASSIGNED)]


def test_a_restart_of_failed_ones_leaves_others_alone() -> None:
    _, lifecycle = started()
    no_actions: list[Action] = []
    assert lifecycle.restart(RestartAsked("c", True, True), set()) == no_actions
    assert lifecycle.restart(RestartAsked("c", False, False), set()) == [
        Publish("c", State.RESTARTING),
        Stop("c", 1),
    ]


def test_tasks_of_which_compaction_left_a_part_do_not_run() -> None:
    configs = Configs()
    apply(configs, connector_entries("c", CONFIG))
    whole = task_entries("c", [CONFIG, CONFIG])
    apply(configs, whole[1:])
    assert not configs.connectors["c"].is_consistent
    lifecycle = Lifecycle(configs)
    assert [action.unit for action in lifecycle.reconcile() if isinstance(action, Start)] == ["c"]
    apply(configs, whole)
    assert [action.unit for action in lifecycle.reconcile() if isinstance(action, Start)] == [
        TASK,
        TaskId("c", 1),
    ]
