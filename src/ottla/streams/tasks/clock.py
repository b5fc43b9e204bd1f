"""Whether a part of a plan needs the clock: Spark then runs micro-batches all the time, with records or
without."""

from __future__ import annotations

from ottla.streams.errors import StreamsError
from ottla.streams.operators.custom import CustomProcessor
from ottla.streams.plan.plan import Plan, ProcessorNode
from ottla.streams.state.backend import MemoryBackend
from ottla.streams.tasks.task import Task


def schedules_clock_timers(plan: Plan) -> bool:
    """Asks the processors: only their ``init`` knows which timers they schedule."""
    if not any(
        isinstance(node, ProcessorNode) and isinstance(node.operator, CustomProcessor)
        for node in plan.nodes.values()
    ):
        return False
    try:
        task = Task(
            plan,
            application_id="",
            partition=0,
            backends=lambda store: MemoryBackend(),
            emit=lambda output: None,
            now_ms=lambda: 0,
        )
    except StreamsError:
        raise
    except Exception:
        # It may need something that only workers have.
        return True
    task.close()
    return bool(task.timers.by_wall_clock)
