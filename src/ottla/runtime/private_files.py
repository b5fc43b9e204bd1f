"""Secrets for libraries that only read files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file that nobody else can read, and that is gone afterwards."""
    descriptor, path = tempfile.mkstemp(prefix="ottla-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def file_stamp(path: str) -> tuple[int, int, int] | None:
    """Something else once the file has changed or was replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
