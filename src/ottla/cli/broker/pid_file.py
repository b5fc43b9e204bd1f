"""The process that serves a data directory, written down for `ottla stop`."""

from __future__ import annotations

import contextlib
import os

NAME = "ottla.pid"


def write(data_dir: str) -> None:
    with open(f"{data_dir}/{NAME}", "w") as file:
        file.write(f"{os.getpid()}\n")


def read(data_dir: str) -> int | None:
    """None when there is none, or none that makes sense."""
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError),
        open(f"{data_dir}/{NAME}") as file,
    ):
        return int(file.read())
    return None


def remove(data_dir: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{data_dir}/{NAME}")
