"""The connectors and tasks of one worker: what runs, what should, and what to do about the difference.

    wanted ──start──▶ STARTING ──started──▶ RUNNING ◀─pause/resume─▶ PAUSED
                          │                    │                       │
                          └──────failed────────┴────────failed─────────┴──▶ FAILED
    restarted, or with a new configuration: FAILED ──start──▶ STARTING
    no longer wanted, or wanted otherwise: ──stop──▶ STOPPING ──stopped──▶ gone, or STARTING again

Deterministic and without I/O: it takes what the config topic says and what became of earlier actions, and
gives actions and statuses. Each start has a number, so what a run from before still reports is told apart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.connect.state.configs import Config, Configs, RestartAsked, TargetState
from ottla.connect.state.entries import TaskId
from ottla.connect.state.statuses import State

Unit = str | TaskId
"""A connector by its name, or one of its tasks."""


class Start(NamedTuple):
    unit: Unit
    run: int
    connector_config: Config
    task_config: Config | None
    is_paused: bool


class Stop(NamedTuple):
    unit: Unit
    run: int


class Pause(NamedTuple):
    unit: Unit
    run: int


class Resume(NamedTuple):
    unit: Unit
    run: int


class ComputeTasks(NamedTuple):
    """Asks a running connector for its tasks, to be written to the config topic where they differ."""

    connector: str


class RemoveTasks(NamedTuple):
    """Writes that a stopped connector has no tasks."""

    connector: str


class Publish(NamedTuple):
    unit: Unit
    state: State
    trace: str | None = None


Action = Start | Stop | Pause | Resume | ComputeTasks | RemoveTasks | Publish


class Phase(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run is started anew when any of these changes."""

    connector_config: Config
    task_config: Config | None
    generation: int
    restarts: int


@dataclass(slots=True)
class Run:
    number: int
    wanted: Wanted
    is_paused: bool
    phase: Phase = Phase.STARTING


@dataclass(slots=True)
class Lifecycle:
    configs: Configs
    is_assigned: Callable[[Unit], bool] = lambda _: True
    _runs: dict[Unit, Run] = field(default_factory=dict)
    _restarts: dict[Unit, int] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    """Connectors whose state STOPPED is told."""
    _number: int = 0

    @property
    def running(self) -> Collection[Unit]:
        return self._runs.keys()

    def is_current(self, unit: Unit, run: int) -> bool:
        """False for a run that something else has taken the place of."""
        current = self._current(unit, run)
        return current is not None and current.phase is not Phase.STOPPING

    def is_run(self, unit: Unit, run: int) -> bool:
        return self._current(unit, run) is not None

    def reconcile(self) -> list[Action]:
        """After the config topic or the assignment has changed."""
        actions: list[Action] = []
        wanted = dict(self._wanted())
        for unit in [*self._runs, *(unit for unit in wanted if unit not in self._runs)]:
            actions += self._settle(unit, wanted.get(unit))
        actions += self._tell_stopped()
        return actions

    def restart(self, asked: RestartAsked, failed: Collection[Unit]) -> list[Action]:
        """`failed` are the units of the connector whose state is FAILED."""
        actions: list[Action] = []
        for unit in self.restarted(asked, failed):
            if self.is_assigned(unit):
                actions.append(Publish(unit, State.RESTARTING))
                self._restarts[unit] = self._restarts.get(unit, 0) + 1
        return actions + self.reconcile()

    def restarted(self, asked: RestartAsked, failed: Collection[Unit]) -> list[Unit]:
        entry = self.configs.connectors.get(asked.connector)
        if entry is None:
            return []
        units: list[Unit] = [asked.connector]
        if asked.include_tasks:
            units += [TaskId(asked.connector, number) for number in range(len(entry.tasks))]
        return [unit for unit in units if not asked.only_failed or unit in failed]

    def restart_one(self, unit: Unit) -> list[Action]:
        self._restarts[unit] = self._restarts.get(unit, 0) + 1
        return self.reconcile()

    # What became of actions

    def started(self, unit: Unit, run: int) -> list[Action]:
        current = self._current(unit, run)
        if current is None or current.phase is Phase.STOPPING:
            return []
        current.phase = Phase.PAUSED if current.is_paused else Phase.RUNNING
        state = State.PAUSED if current.is_paused else State.RUNNING
        actions: list[Action] = [Publish(unit, state)]
        if isinstance(unit, str) and not current.is_paused:
            actions.append(ComputeTasks(unit))
        # It may have been told to pause, or to go on, while it started.
        return actions + self.reconcile()

    def failed(self, unit: Unit, run: int, trace: str) -> list[Action]:
        current = self._current(unit, run)
        if current is None:
            return []
        if current.phase is Phase.STOPPING:
            return self.stopped(unit, run)
        current.phase = Phase.FAILED
        return [Publish(unit, State.FAILED, trace)]

    def stopped(self, unit: Unit, run: int) -> list[Action]:
        current = self._current(unit, run)
        if current is None:
            return []
        del self._runs[unit]
        return [*self._told_gone(unit), *self.reconcile()]

    def stop_all(self) -> list[Action]:
        """Before the worker ends: everything is let go of, and told so once it has stopped."""
        self.is_assigned = lambda _: False
        return self.reconcile()

    # Deciding

    def _wanted(self) -> Iterator[tuple[Unit, Wanted]]:
        for name, entry in self.configs.connectors.items():
            if entry.target is TargetState.STOPPED:
                continue
            if self.is_assigned(name):
                yield name, Wanted(entry.config, None, 0, self._restarts.get(name, 0))
            for number, task in enumerate(entry.tasks):
                unit = TaskId(name, number)
                # Tasks are those of the configuration that they were made from, until new ones are written.
                if entry.is_consistent and self.is_assigned(unit):
                    restarts = self._restarts.get(unit, 0)
                    yield unit, Wanted(entry.applied or entry.config, task, entry.generation, restarts)

    def _settle(self, unit: Unit, wanted: Wanted | None) -> list[Action]:
        run = self._runs.get(unit)
        if run is None:
            return [] if wanted is None else [self._start(unit, wanted)]
        if run.phase is Phase.STOPPING:
            return []
        if wanted is None or wanted != run.wanted:
            if run.phase is not Phase.FAILED:
                run.phase = Phase.STOPPING
                return [Stop(unit, run.number)]
            del self._runs[unit]
            return self._told_gone(unit) if wanted is None else [self._start(unit, wanted)]
        is_paused = self._is_paused(unit)
        if run.phase in {Phase.RUNNING, Phase.PAUSED} and is_paused != run.is_paused:
            return self._turn(unit, run, is_paused)
        return []

    def _turn(self, unit: Unit, run: Run, is_paused: bool) -> list[Action]:
        run.is_paused = is_paused
        run.phase = Phase.PAUSED if is_paused else Phase.RUNNING
        state = State.PAUSED if is_paused else State.RUNNING
        turn = Pause(unit, run.number) if is_paused else Resume(unit, run.number)
        actions: list[Action] = [turn, Publish(unit, state)]
        if isinstance(unit, str) and not is_paused:
            actions.append(ComputeTasks(unit))
        return actions

    def _start(self, unit: Unit, wanted: Wanted) -> Start:
        self._number += 1
        run = self._runs[unit] = Run(self._number, wanted, self._is_paused(unit))
        return Start(unit, run.number, wanted.connector_config, wanted.task_config, run.is_paused)

    def _is_paused(self, unit: Unit) -> bool:
        name = unit.connector if isinstance(unit, TaskId) else unit
        return self.configs.connectors[name].target is TargetState.PAUSED

    def _told_gone(self, unit: Unit) -> list[Action]:
        """What the status topic is to say of something that has stopped and does not start again at once."""
        name = unit.connector if isinstance(unit, TaskId) else unit
        entry = self.configs.connectors.get(name)
        if entry is None:
            return [Publish(unit, State.DESTROYED)]
        if isinstance(unit, TaskId) and (
            unit.task >= len(entry.tasks) or entry.target is TargetState.STOPPED
        ):
            return [Publish(unit, State.DESTROYED)]
        if entry.target is TargetState.STOPPED or any(unit == each for each, _ in self._wanted()):
            return []
        return [Publish(unit, State.UNASSIGNED)]

    def _tell_stopped(self) -> list[Action]:
        actions: list[Action] = []
        is_stopped = {
            name
            for name, entry in self.configs.connectors.items()
            if entry.target is TargetState.STOPPED and name not in self._runs and self.is_assigned(name)
        }
        for name in sorted(is_stopped - self._stopped):
            actions.append(Publish(name, State.STOPPED))
        for name in sorted(self._stopped - self.configs.connectors.keys()):
            actions.append(Publish(name, State.DESTROYED))
        for name in sorted(is_stopped):
            if self.configs.connectors[name].tasks:
                actions.append(RemoveTasks(name))
        self._stopped = is_stopped
        return actions

    def _current(self, unit: Unit, run: int) -> Run | None:
        current = self._runs.get(unit)
        return current if current is not None and current.number == run else None
