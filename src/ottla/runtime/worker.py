"""A process that does the jobs of a broker, one slice at a time: see `workers`.

question: bytes allowed i64 · pickled (generator function, arguments), for a new job only
answer:   pickled Slice, or the exception that ended the job
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from ottla.runtime.disk import Disk, PosixDisk
from ottla.runtime.workers import BYTES_MAX, LENGTH, SLICE_SECONDS, Slice, Steps, take_slice

# Requests come first; but on a machine that is always busy a tenth of a core must be left for this.
_NICENESS = 10
_OOM_SCORE_ADJUSTMENT = b"500"


def _receive(channel: socket.socket, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        try:
            part = channel.recv(count - len(received))
        except ConnectionError:
            # The broker died with an answer unread.
            return None
        if not part:
            return None
        received += part
    return bytes(received)


def _answered(steps: Steps | None, bytes_max: int) -> Slice | Exception:
    if steps is None:
        return RuntimeError("there is no job to go on with")
    try:
        return take_slice(steps, time.monotonic, SLICE_SECONDS, bytes_max)
    except Exception as error:
        return error


def _pickled(answer: Slice | Exception) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps(RuntimeError(f"{answer!r} cannot be passed on: {error}"))


def _first(job: tuple[Callable[..., Steps], tuple[Any, ...]], disk: Disk) -> Steps:
    steps, args = job
    return steps(disk, *args)


def serve(channel: socket.socket) -> None:
    disk = PosixDisk()
    steps: Steps | None = None
    while (length := _receive(channel, LENGTH.size)) is not None:
        question = _receive(channel, LENGTH.unpack(length)[0])
        if question is None:
            return
        (bytes_max,) = BYTES_MAX.unpack_from(question)
        if len(question) > BYTES_MAX.size:
            steps = _first(pickle.loads(question[BYTES_MAX.size :]), disk)  # noqa: S301 - from its parent
        answer = _answered(steps, bytes_max)
        if isinstance(answer, Exception) or answer.ended:
            steps = None
        data = _pickled(answer)
        try:
            channel.sendall(LENGTH.pack(len(data)) + data)
        except ConnectionError:
            return


def main() -> None:
    # Ctrl-C goes to all processes of a terminal; this one ends when the broker does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    # Where memory runs out, the broker should not be what is sacrificed.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as adjustment:
        adjustment.write(_OOM_SCORE_ADJUSTMENT)
    # A package that is installed for development may be imported by others for nothing.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)


if __name__ == "__main__":
    main()
