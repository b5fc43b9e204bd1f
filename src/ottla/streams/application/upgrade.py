"""What becomes of state and progress when a program has changed since it last ran.

A query whose shape is the same goes on from its checkpoint. Else its stores are rebuilt from their
changelogs, and it goes on from the offsets of its group, which were committed together with them. What cannot
be rebuilt is refused before anything starts, unless the user gives it up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ottla.streams.application.shapes import QueryShape
from ottla.streams.on_spark.query_plan import Kind, is_generated

CHOICES = (
    "Choose one: run the topology that ran before; name the store with Materialized.as_, let the application "
    "catch up under that name, and change it then; give up what cannot be kept (--upgrade discard, or "
    'StreamsConfig(upgrade="discard")), which begins with empty stores and goes on from the committed '
    "offsets; or start the application anew (streams-application-reset)."
)


class Action(Enum):
    NEW = "new"
    KEPT = "kept"
    REBUILT = "rebuilt"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Decision:
    label: str
    action: Action
    text: str
    # The queries that it goes on from.
    formers: tuple[str, ...] = ()
    # Stores that are filled from their changelogs.
    restored: tuple[str, ...] = ()
    # Whether what is in these changelogs may belong to other tasks now.
    moves: bool = False
    # Stores that begin without what their changelogs may have from before.
    emptied: tuple[str, ...] = ()
    # Whether it goes on from its checkpoint.
    continues: bool = False

    def __str__(self) -> str:
        return f"{self.action.value}: {self.label}: {self.text}"


_GONE = "its checkpoint is gone"


@dataclass(frozen=True, slots=True)
class Losses:
    """What is no longer there of what an application has left behind."""

    # Queries by label: those whose checkpoint was deleted, and those whose group has no offsets any more.
    checkpoints: frozenset[str] = frozenset()
    offsets: frozenset[str] = frozenset()
    # Stores whose changelog was deleted, now or at some time since they began.
    changelogs: frozenset[str] = frozenset()


NO_LOSSES = Losses()


def decide(
    present: Mapping[str, QueryShape],
    former: Mapping[str, QueryShape],
    unknown: Collection[str] = (),
    *,
    losses: Losses = NO_LOSSES,
    discard: bool = False,
) -> list[Decision]:
    """For every query there is, and every one there was. `unknown` are queries that have run, as their group
    shows, but whose state is gone."""
    decisions = []
    origins = {label: _origins(label, shape, present, former) for label, shape in present.items()}
    stores = {name for shape in present.values() for name in shape.stores}
    for label, shape in present.items():
        formers = origins[label]
        is_gone = label in losses.checkpoints
        if formers == (label,) and former[label] == shape and not is_gone:
            text = "goes on from its checkpoint"
            decisions.append(Decision(label, Action.KEPT, text, formers, continues=True))
        elif formers:
            shapes = {each: former[each] for each in formers}
            others = tuple(each for each in formers if each != label)
            if label in former:
                why = _GONE if is_gone else shape.difference(former[label])
                why += f", and has what {' and '.join(others)} had" if others else ""
            else:
                why = f"it was {' and '.join(others)}"
            decisions.append(_rebuild(label, shape, shapes, why, losses, discard, stores))
        elif label in unknown:
            decision = _rebuild(label, shape, {label: shape}, _GONE, losses, discard, stores)
            # How many tasks there were is lost too.
            decisions.append(replace(decision, moves=_can_move(shape)))
        else:
            decisions.append(Decision(label, Action.NEW, "begins"))
    taken = {each for formers in origins.values() for each in formers}
    decisions += [_drop(label, former[label], discard) for label in former if label not in taken]
    return decisions


def _origins(
    label: str, shape: QueryShape, present: Mapping[str, QueryShape], former: Mapping[str, QueryShape]
) -> tuple[str, ...]:
    """The queries that had what it has: itself first, and those whose topics or named stores it takes over,
    whether they are still there or not. Sub-topologies become one by a join, and two without it."""
    own = (label,) if label in former else ()
    others = (
        name
        for name, each in former.items()
        if name != label and _takes_over(shape, each, is_gone=name not in present)
    )
    return (*own, *others)


def _takes_over(shape: QueryShape, former: QueryShape, *, is_gone: bool) -> bool:
    # What is numbered by its place in the program can be another one's by now.
    topics = [topic for topic in former.topics if topic in shape.topics]
    if any(is_gone or not is_generated(topic) for topic in topics):
        return True
    return any(store.is_named and name in shape.stores for name, store in former.stores.items())


def _rebuild(
    label: str,
    shape: QueryShape,
    former_shapes: Mapping[str, QueryShape],
    why: str,
    losses: Losses,
    discard: bool,
    stores: Collection[str],
) -> Decision:
    """`stores` are all that there are now."""
    formers = tuple(former_shapes)
    restored: list[str] = []
    lost: list[str] = []
    for former_label, former in former_shapes.items():
        is_forgotten = former_label in losses.offsets
        if is_forgotten:
            lost.append(f"the group of {former_label} has no offsets any more, which only its checkpoint has")
        for name in former.stores:
            if is_forgotten:
                continue
            problem = _problem(name, former, shape, losses)
            if problem is not None:
                lost.append(problem)
            elif name in shape.stores:
                restored.append(name)
    if lost and not discard:
        return Decision(label, Action.REFUSED, f"{why}, and {'; '.join(lost)}. {CHOICES}", formers)
    emptied = [name for name in shape.stores if name not in restored]
    dropped = sorted({name for each in former_shapes.values() for name in each.stores} - set(stores))
    parts = [why]
    parts += [f"from its changelog: {', '.join(restored)}"] if restored else []
    parts += [f"given up: {'; '.join(lost)}"] if lost else []
    parts += [f"dropped: {', '.join(dropped)}"] if dropped else []
    parts += [f"begins empty: {', '.join(emptied)}"] if emptied else []
    action = Action.REBUILT if restored or lost or emptied else Action.KEPT
    text = "; ".join(parts) + "; goes on from the committed offsets"
    moves = any(each.tasks != shape.tasks or each.by_key != shape.by_key for each in former_shapes.values())
    return Decision(label, action, text, formers, tuple(restored), moves, tuple(emptied))


def _problem(name: str, former: QueryShape, shape: QueryShape, losses: Losses) -> str | None:
    """Why a store's state cannot come along."""
    before, now = former.stores[name], shape.stores.get(name)
    if now is None:
        # What has a name and is gone was taken out on purpose.
        return None if before.is_named else f"the store {name}, which has no name, is gone"
    if not now.reads(before):
        return f"the store {name} was {before} and is {now}; another store needs another name"
    if not before.is_logged or not now.is_logged:
        cause = "" if before.is_named else ", since it has no name"
        return f"the store {name} has no changelog to be rebuilt from{cause}"
    if name in losses.changelogs:
        return f"the changelog topic of the store {name} was deleted, so it does not have all of it"
    # A query that goes on from another one may have other tasks for the same number of them.
    if (former.tasks, former.by_key) != (shape.tasks, shape.by_key) and not now.is_keyed:
        return (
            f"the keys in the changelog of {name} do not say which records they belong to, so its entries "
            f"cannot be divided among {shape.tasks} tasks instead of {former.tasks}"
        )
    if shape.kind == Kind.AGGREGATION.value:
        return f"the store {name} is that of a column expression, which only its checkpoint can go on with"
    if shape.is_final:
        return f"which windows of {name} have given their results is known to the checkpoint only"
    return None


def _drop(label: str, shape: QueryShape, discard: bool) -> Decision:
    unnamed = sorted(name for name, store in shape.stores.items() if not store.is_named)
    if unnamed and not discard:
        text = f"the store {unnamed[0]}, which has no name, is gone from the topology. {CHOICES}"
        return Decision(label, Action.REFUSED, text)
    if not shape.stores:
        return Decision(
            label, Action.DROPPED, "is no longer in the topology; its checkpoint stays where it is"
        )
    stores = ", ".join(sorted(shape.stores))
    text = f"is no longer in the topology; its checkpoint and its stores ({stores}) stay where they are"
    return Decision(label, Action.DROPPED, text)


def to_route_by_key(
    present: Mapping[str, QueryShape], former: Mapping[str, QueryShape], unknown: Collection[str] = ()
) -> set[str]:
    """Queries that read topics and whose number of tasks has changed, now or before: there records of one key
    lie in more than one partition."""
    found = {
        label
        for label in unknown
        if _can_move(present[label]) and not _origins(label, present[label], present, former)
    }
    for label, shape in present.items():
        origins = [former[each] for each in _origins(label, shape, present, former)]
        if shape.tasks and any(each.by_key or each.tasks not in {0, shape.tasks} for each in origins):
            found.add(label)
    return {label for label in found if present[label].reads_topics}


def to_keep_tasks(
    present: Mapping[str, QueryShape], former: Mapping[str, QueryShape], losses: Losses = NO_LOSSES
) -> dict[str, int]:
    """The number of tasks of queries that lose more than they win by another one. Behind a shuffle a topic
    further up that has grown makes no difference."""
    return {
        label: former[label].tasks
        for label, shape in present.items()
        if label in former
        and not shape.reads_topics
        and former[label].tasks not in {0, shape.tasks}
        and (
            shape.kind == former[label].kind == Kind.AGGREGATION.value
            or any(_problem(name, former[label], shape, losses) for name in former[label].stores)
        )
    }


def _can_move(shape: QueryShape) -> bool:
    return bool(shape.stores) and all(store.is_keyed for store in shape.stores.values())


def to_run_in_tasks(
    present: Mapping[str, QueryShape],
    former: Mapping[str, QueryShape],
    unknown: Collection[str] = (),
    losses: Losses = NO_LOSSES,
) -> set[str]:
    """Queries that Spark could aggregate by itself, but that have to go on from elsewhere than its own
    checkpoint: only tasks can be given state."""
    return {
        decision.label
        for decision in decide(present, former, unknown, losses=losses)
        if decision.action not in {Action.NEW, Action.KEPT, Action.DROPPED}
        and decision.label in present
        and present[decision.label].aggregation == "count"
    }
