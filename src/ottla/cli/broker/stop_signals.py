"""Signals that ask a broker to stop, before and after there is an event loop to take them."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP says that the terminal is gone, which nohup has decided not to hear."""
    asked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return tuple(
        number
        for number in asked
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    )


def end_at_once_until_started() -> None:
    """While modules are imported nothing has been touched: there is nothing to do but go."""
    for number in stop_signals():
        signal.signal(number, _end)


def ignore_from_now_on() -> None:
    """The broker has stopped; another signal must not make its good end look bad."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)


def stopped_before_ready() -> int:
    """The status to exit with, as after every stop that was asked for."""
    print("ottla: stopped before it was ready", file=sys.stderr, flush=True)
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(stopped_before_ready())
