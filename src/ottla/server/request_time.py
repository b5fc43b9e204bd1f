"""How long the event loop works for a request that is answered later: the time of its steps, without what it
waits for."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def _steps(
    work: Coroutine[Any, Any, T], monotonic: Callable[[], float], note: Callable[[float], None]
) -> Generator[Any, Any, T]:
    step = partial(work.send, None)
    while True:
        began = monotonic()
        try:
            waited_for = step()
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            note(monotonic() - began)
        try:
            sent = yield waited_for
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)


async def noting_time(
    work: Coroutine[Any, Any, T], monotonic: Callable[[], float], note: Callable[[float], None]
) -> T:
    """As `work`; each time it has worked, `note` is told for how many seconds."""
    return await _steps(work, monotonic, note)
