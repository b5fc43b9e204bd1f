"""What the process has freed and its allocator keeps: given back to the system from time to time.

glibc keeps freed memory in case it is wanted again, and a small block that is still in use holds back all
that is free below it. A hundred requests of megabytes leave a hundred megabytes behind that nobody uses.
Fixed thresholds would mend that too, but have every large request pay for fresh pages. Only glibc can be
asked; elsewhere nothing happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Any

from ottla.runtime.tasks import Offload

INTERVAL_S = 10.0
_M_ARENA_MAX = -8


def _find(name: str, *arguments: Any) -> Any:
    if sys.platform != "linux":
        return None
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = arguments
    return function


_malloc_trim = _find("malloc_trim", ctypes.c_size_t)
_mallopt = _find("mallopt", ctypes.c_int, ctypes.c_int)


def share_one_heap() -> None:
    """Before there are threads: what is free at the end of their own heaps is not given back by asking."""
    if _malloc_trim is not None and _mallopt is not None:
        _mallopt(_M_ARENA_MAX, 1)


async def keep_giving_back(offload: Offload) -> None:
    """Until it is cancelled. Takes a tenth of a millisecond, or some for a hundred megabytes."""
    while _malloc_trim is not None:
        await asyncio.sleep(INTERVAL_S)
        # In a thread: others run meanwhile, except for who needs memory in the very millisecond.
        await offload.run(_malloc_trim, 0)
