"""PosixDisk on real files; that SimDisk behaves alike is tested in tests/sim."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.runtime import page_cache
from ottla.runtime.disk import (
    IOV_MAX,
    LOOK_AHEAD_BYTES,
    MMAP_BYTES_MIN,
    WARM_SECONDS,
    DiskLocked,
    PosixDisk,
)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


def test_append_gathers_all_buffers(directory: str) -> None:
    file = PosixDisk().open(f"{directory}/f", create=True)
    file.append([b"ab", bytearray(b"cd"), memoryview(b"xef")[1:]])
    file.append([b"g"])
    assert file.size == 7
    assert file.read(0, 100) == b"abcdefg"
    assert file.read(5, 1) == b"f"
    assert file.read(7, 1) == b""
    file.close()


def test_append_takes_more_buffers_than_one_call_can(directory: str) -> None:
    file = PosixDisk().open(f"{directory}/f", create=True)
    file.append([bytes([number % 251]) for number in range(IOV_MAX + 5)])
    assert file.size == IOV_MAX + 5
    assert file.read(IOV_MAX, 2) == bytes([IOV_MAX % 251, (IOV_MAX + 1) % 251])
    file.close()


def test_append_finishes_a_short_write(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write

    def short_writev(fd: int, buffers: list[bytes]) -> int:
        return real_write(fd, b"".join(buffers)[:4])

    monkeypatch.setattr(os, "writev", short_writev)
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, bytes(data)[:2]))
    file = PosixDisk().open(f"{directory}/f", create=True)
    file.append([b"abc", b"def", b"", b"ghi"])
    assert file.read(0, 100) == b"abcdefghi"
    assert file.size == 9
    file.close()


def test_a_failed_append_leaves_the_file_as_it_was(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk()
    file = disk.open(f"{directory}/f", create=True)
    file.append([b"kept"])
    real_write = os.write

    def disk_full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "writev", lambda fd, buffers: real_write(fd, buffers[0]))
    monkeypatch.setattr(os, "write", disk_full)
    with pytest.raises(OSError, match="disk full"):
        file.append([b"half", b"never"])
    monkeypatch.undo()
    assert file.size == 4
    assert disk.read_file(f"{directory}/f") == b"kept"
    file.append([b"!"])
    assert file.read(0, 100) == b"kept!"
    file.close()


def test_large_views_are_mapped_and_see_later_appends(directory: str) -> None:
    file = PosixDisk().open(f"{directory}/f", create=True)
    first = os.urandom(MMAP_BYTES_MIN)
    file.append([first])
    early = file.view(0, MMAP_BYTES_MIN)
    assert isinstance(early, memoryview)
    second = os.urandom(MMAP_BYTES_MIN)
    file.append([second])
    assert file.view(MMAP_BYTES_MIN, MMAP_BYTES_MIN) == second
    assert file.view(10, 10**9) == (first + second)[10:]
    file.close()
    assert early == first


def test_views_at_the_end_are_copies_however_much_was_asked_for(directory: str) -> None:
    file = PosixDisk().open(f"{directory}/f", create=True)
    assert file.view(0, 10**6) == b""
    file.append([bytes(2 * MMAP_BYTES_MIN), b"end"])
    tail = file.view(2 * MMAP_BYTES_MIN, 10**6)
    assert isinstance(tail, bytes)
    assert tail == b"end"
    assert file.view(file.size, 10**6) == b""
    assert file.view(file.size + 5, 10**6) == b""
    file.close()


def test_truncate_then_append(directory: str) -> None:
    file = PosixDisk().open(f"{directory}/f", create=True)
    file.append([bytes(3 * MMAP_BYTES_MIN)])
    file.view(0, 3 * MMAP_BYTES_MIN)
    file.truncate(2)
    file.append([b"x" * 2 * MMAP_BYTES_MIN])
    file.sync()
    assert file.size == 2 + 2 * MMAP_BYTES_MIN
    assert file.view(0, 10**9) == b"\0\0" + b"x" * 2 * MMAP_BYTES_MIN
    file.close()
    file.close()


def test_open_finds_the_size_and_missing_files_are_errors(directory: str) -> None:
    disk = PosixDisk()
    with pytest.raises(FileNotFoundError):
        disk.open(f"{directory}/f")
    disk.replace_file(f"{directory}/f", b"12345")
    file = disk.open(f"{directory}/f")
    assert file.size == 5
    file.close()


def test_replace_file_leaves_nothing_else_behind(directory: str) -> None:
    disk = PosixDisk()
    disk.replace_file(f"{directory}/f", b"old")
    disk.replace_file(f"{directory}/f", b"new", sync=False)
    assert disk.read_file(f"{directory}/f") == b"new"
    assert disk.list_dir(directory) == ["f"]


def test_a_lock_has_one_holder(directory: str) -> None:
    disk = PosixDisk()
    lock = disk.lock(f"{directory}/.lock")
    with pytest.raises(DiskLocked):
        disk.lock(f"{directory}/.lock")
    lock.release()
    disk.lock(f"{directory}/.lock").release()


def test_directories(directory: str) -> None:
    disk = PosixDisk()
    disk.make_dirs(f"{directory}/a/b")
    disk.make_dirs(f"{directory}/a/b")
    for name in ("z", "m", "c"):
        disk.replace_file(f"{directory}/a/b/{name}", name.encode())
    assert disk.list_dir(f"{directory}/a/b") == ["c", "m", "z"]
    disk.remove(f"{directory}/a/b/m")
    disk.rename(f"{directory}/a", f"{directory}/moved")
    disk.sync_dir(directory)
    assert disk.list_dir(f"{directory}/moved/b") == ["c", "z"]
    assert not disk.exists(f"{directory}/a")
    disk.remove_tree(f"{directory}/moved")
    disk.remove_tree(f"{directory}/moved")
    assert disk.list_dir(directory) == []


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux says what is in memory")
def _drop_from_memory(path: str) -> None:
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("kernel_counts_pages", [True, False])
@pytest.mark.parametrize("length", [100, MMAP_BYTES_MIN - 1, MMAP_BYTES_MIN, 5 << 20])
def test_what_only_the_medium_has_is_loaded_before_it_is_viewed(
    directory: str, length: int, kernel_counts_pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel_counts_pages:
        monkeypatch.setattr(page_cache, "_syscall", None)
    content = os.urandom(6 << 20)
    disk = PosixDisk()
    file = disk.open(f"{directory}/f", create=True)
    file.append([content])
    position = 12_345
    expected = content[position : position + length]
    assert file.view_nowait(position, length) == expected
    file.close()
    _drop_from_memory(f"{directory}/f")
    file = disk.open(f"{directory}/f")
    if file.view_nowait(position, length) is not None:
        pytest.skip("this file system keeps its files in memory")
    file.load(position, length)
    assert file.view_nowait(position, length) == expected
    assert bytes(file.view_nowait(len(content) - 10, 100) or b"") in (b"", content[-10:])
    file.close()


def test_what_is_in_memory_is_taken_to_be_there_for_a_moment_only(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few enough that they are not mapped: pages that are cannot be dropped from outside.
    length, now = 100, 1.0
    monkeypatch.setattr("ottla.runtime.disk.monotonic", lambda: now)
    file = PosixDisk().open(f"{directory}/f", create=True)
    content = os.urandom(1 << 20)
    file.append([content])
    assert file.view_nowait(0, length) == content[:length]
    _drop_from_memory(f"{directory}/f")
    now += 2 * WARM_SECONDS
    if file.view_nowait(0, length) is not None:
        pytest.skip("this file system keeps its files in memory")
    file.load(0, length)
    assert file.view_nowait(0, length) == content[:length]
    file.close()


def test_reading_on_and_at_the_end_asks_the_kernel_seldom(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.runtime.disk.monotonic", lambda: 1.0)
    asked: list[int] = []

    def count(fd: int, position: int, length: int) -> bool:
        asked.append(position)
        return True

    monkeypatch.setattr("ottla.runtime.disk.has_pages", count)
    file = PosixDisk().open(f"{directory}/f", create=True)
    part = MMAP_BYTES_MIN
    content = os.urandom(LOOK_AHEAD_BYTES + 4 * part)
    file.append([content])
    for position in range(0, len(content), part):
        assert file.view_nowait(position, part) == content[position : position + part]
    assert asked == [0, LOOK_AHEAD_BYTES + part]
    # What is written from now on was in memory a moment ago.
    for length in (10, part):
        file.append([content[:length]])
        assert file.view_nowait(file.size - length, length) == content[:length]
    assert file.view_nowait(LOOK_AHEAD_BYTES, part) == content[LOOK_AHEAD_BYTES:][:part]
    assert asked == [0, LOOK_AHEAD_BYTES + part, LOOK_AHEAD_BYTES]
    file.close()


def test_pages_on_their_way_from_the_medium_do_not_count(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has them as soon as it reads them ahead, for whoever missed what is before them."""
    path, part = f"{directory}/f", 2 * MMAP_BYTES_MIN
    disk = PosixDisk()
    file = disk.open(path, create=True)
    file.append([os.urandom(8 * part)])
    file.close()
    _drop_from_memory(path)
    file, other = disk.open(path), disk.open(path)
    if file.view_nowait(0, part) is not None:
        pytest.skip("this file system keeps its files in memory")
    monkeypatch.setattr("ottla.runtime.disk.has_pages", lambda fd, position, length: True)
    assert file.view_nowait(4 * part, part) is None
    assert other.view_nowait(4 * part, part) is None
    file.close()
    other.close()
