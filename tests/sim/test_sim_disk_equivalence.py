"""SimDisk and PosixDisk do the same, result by result and error by error, as long as nothing crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import Disk, DiskLocked, PosixDisk
from ottla.sim.disk import SimDisk

PATHS = st.sampled_from(["f", "g", "d", "d/f", "d/e", "d/e/f", "missing/f"])
DATA = st.binary(max_size=8)
POSITIONS = st.integers(0, 12)

OPERATIONS = st.one_of(
    st.tuples(st.just("append"), PATHS, st.booleans(), st.lists(DATA, max_size=3)),
    st.tuples(st.just("truncate"), PATHS, POSITIONS),
    st.tuples(st.just("read"), PATHS, POSITIONS, POSITIONS),
    st.tuples(st.just("read_file"), PATHS),
    st.tuples(st.just("replace_file"), PATHS, DATA, st.booleans()),
    st.tuples(st.just("exists"), PATHS),
    st.tuples(st.just("list_dir"), PATHS),
    st.tuples(st.just("make_dirs"), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("remove_tree"), PATHS),
    st.tuples(st.just("sync_dir"), PATHS),
    st.tuples(st.just("lock"), PATHS),
)


def _perform(disk: Disk, root: str, operation: tuple[object, ...]) -> object:
    """One operation on paths below root; its result, or the kind of error it ended in."""
    name, path, *rest = operation
    path = f"{root}/{path}"
    try:
        match [name, *rest]:
            case ["append", bool(create), list(buffers)]:
                file = disk.open(path, create=create)
                file.append(buffers)
                file.sync()
                size = file.size
                file.close()
                return size
            case ["truncate", int(size)]:
                file = disk.open(path)
                file.truncate(size)
                file.close()
                return file.size
            case ["read", int(position), int(length)]:
                file = disk.open(path)
                result = (file.size, file.read(position, length), bytes(file.view(position, length)))
                file.close()
                return result
            case ["replace_file", bytes(data), bool(sync)]:
                return disk.replace_file(path, data, sync=sync)
            case ["rename", str(target)]:
                return disk.rename(path, f"{root}/{target}")
            case ["lock"]:
                lock = disk.lock(path)
                try:
                    disk.lock(path)
                except DiskLocked:
                    return "held"
                finally:
                    lock.release()
            case _:
                method: Callable[[str], object] = getattr(disk, str(name))
                return method(path)
    except OSError as error:
        return type(error).__name__, error.errno


@given(operations=st.lists(OPERATIONS, max_size=25))
@settings(max_examples=100, deadline=None)
def test_every_operation_gives_the_same_result(operations: list[tuple[object, ...]]) -> None:
    simulated = SimDisk()
    simulated.make_dirs("/root")
    with tempfile.TemporaryDirectory() as directory:
        for operation in operations:
            expected = _perform(PosixDisk(), directory, operation)
            assert _perform(simulated, "/root", operation) == expected, operation
