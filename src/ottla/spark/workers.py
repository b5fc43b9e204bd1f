"""What Spark's Python workers are spared."""

from __future__ import annotations

import gc

# By the third function that a worker runs, it has imported what its functions need.
_SETTLED_AFTER = 3
# New objects between two looks for garbage while a function runs. Millions are made, and almost none is part
# of a cycle: as often as Python looks by itself it finds nothing, for a third of what a task costs.
_COLLECTED_OBJECTS = 50_000
_begun = 0


def settle() -> None:
    """Called by each function of ours that begins in a worker.

    Behind every function a worker looks for garbage in all it has, which is mostly imported modules: 40 ms of
    processor time, as much as a small micro-batch costs otherwise. What is there when its first functions
    begin is not looked at again.
    """
    global _begun  # noqa: PLW0603 - counted in the life of a process
    if _begun < _SETTLED_AFTER:
        _begun += 1
        gc.freeze()
        gc.set_threshold(_COLLECTED_OBJECTS)
