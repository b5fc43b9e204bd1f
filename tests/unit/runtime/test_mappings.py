"""Slices of a file that wait to be sent while the file is cut off."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.runtime.disk import MMAP_BYTES_MIN, PosixDisk

PAGE = mmap.PAGESIZE
BYTES = bytes(range(256)) * (4 * MMAP_BYTES_MIN // 256)

CUT = """
import sys
from ottla.runtime.disk import PosixDisk

path, position, grows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = open(path, "rb").read()
disk = PosixDisk()
file = disk.open(path)
early = file.view(0, len(content) // 2)
file.append([content])
late = file.view(0, 2 * len(content))
# As when the log closes a segment and opens it again, while a socket has not sent everything.
file.close()
file = disk.open(path)
middle = file.view(7, len(content))
file.truncate(position)
file.append([b"other bytes" * grows])
assert early == content[: len(content) // 2]
assert late == content + content
assert middle == (content + content)[7 : 7 + len(content)]
after = file.read(0, 1 << 30)
assert after == (content + content)[:position] + b"other bytes" * grows
assert file.size == len(after)
if len(after) >= 65536:
    assert file.view(0, len(after)) == after
# Cut off again, further down.
file.truncate(position // 2)
file.append([b"again"])
assert early == content[: len(content) // 2]
assert late == content + content
assert middle == (content + content)[7 : 7 + len(content)]
"""


@pytest.mark.parametrize("grows", [0, 1, 100_000])
@pytest.mark.parametrize("position", [0, 1, PAGE, 3 * PAGE - 1, len(BYTES) - 1, len(BYTES) + PAGE + 100])
def test_what_was_read_stays_what_it_was(tmp_path: Path, position: int, grows: int) -> None:
    """In a process of its own: what goes wrong here ends it with SIGBUS."""
    path = tmp_path / "file"
    path.write_bytes(BYTES)
    command = [sys.executable, "-c", CUT, str(path), str(position), str(grows)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"{result.returncode}: {result.stderr}"


def test_nothing_is_copied_where_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(BYTES)
    file = PosixDisk().open(str(path))
    view = file.view(0, len(BYTES))
    assert isinstance(view, memoryview)
    del view
    gc.collect()

    def copied(*arguments: object) -> None:
        raise AssertionError("nobody holds a slice")

    monkeypatch.setattr("ottla.runtime.mappings._detach", copied)
    file.truncate(100)
    assert file.read(0, 1000) == BYTES[:100]
    file.close()
