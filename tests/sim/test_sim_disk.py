"""SimDisk: the page cache, what a power cut leaves of it, and faults on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import DiskLocked
from ottla.sim.disk import SimDisk
from ottla.sim.loop import ProcessDied
from ottla.sim.medium import TailFault

SEEDS = range(40)


def _outcomes(
    scenario: Callable[[SimDisk], None], observe: Callable[[SimDisk], object], **options: object
) -> set[object]:
    """What is seen after a power cut, over many seeds."""
    outcomes = set()
    for seed in SEEDS:
        disk = SimDisk(seed, **options)  # type: ignore[arg-type]
        scenario(disk)
        disk.crash()
        outcomes.add(observe(disk))
    return outcomes


def _content(path: str) -> Callable[[SimDisk], object]:
    return lambda disk: disk.read_file(path) if disk.exists(path) else None


def _unsynced_tail(disk: SimDisk) -> None:
    file = disk.open("/f", create=True)
    file.append([b"synced"])
    file.sync()
    disk.sync_dir("/")
    file.append([b"abc", memoryview(b"def")])
    assert disk.read_file("/f") == b"syncedabcdef"


def test_lost_tail() -> None:
    assert _outcomes(_unsynced_tail, _content("/f"), faults=[TailFault.LOST]) == {b"synced"}


def test_torn_tail() -> None:
    expected = {b"syncedabcdef"[:end] for end in range(6, 13)}
    assert _outcomes(_unsynced_tail, _content("/f"), faults=[TailFault.TORN]) == expected


def test_damaged_tail_keeps_its_length_and_spares_what_was_synced() -> None:
    outcomes = _outcomes(_unsynced_tail, _content("/f"), faults=[TailFault.DAMAGED])
    assert all(
        isinstance(data, bytes) and data.startswith(b"synced") and len(data) == 12 for data in outcomes
    )
    assert any(isinstance(data, bytes) and b"\0\0" in data for data in outcomes)
    assert len(outcomes) > 10


def test_truncation_needs_a_sync() -> None:
    def scenario(disk: SimDisk) -> None:
        file = disk.open("/f", create=True)
        file.append([b"abcdef"])
        file.sync()
        disk.sync_dir("/")
        file.truncate(4)
        file.truncate(2)
        file.append([b"XY"])
        assert file.size == 4
        assert disk.read_file("/f") == b"abXY"

    assert _outcomes(scenario, _content("/f"), faults=[TailFault.LOST]) == {b"abcdef", b"ab"}

    def synced(disk: SimDisk) -> None:
        scenario(disk)
        disk.open("/f").sync()

    assert _outcomes(synced, _content("/f")) == {b"abXY"}


def test_a_new_name_needs_its_directory_synced() -> None:
    def scenario(disk: SimDisk) -> None:
        file = disk.open("/f", create=True)
        file.append([b"x"])
        file.sync()

    assert _outcomes(scenario, _content("/f")) == {None, b"x"}


def test_syncing_a_directory_does_not_sync_its_own_name() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.make_dirs("/a/b")
        disk.open("/a/b/f", create=True).sync()
        disk.sync_dir("/a/b")

    assert _outcomes(scenario, lambda disk: disk.exists("/a/b/f")) == {True, False}

    def synced(disk: SimDisk) -> None:
        scenario(disk)
        disk.sync_dir("/a")
        disk.sync_dir("/")

    assert _outcomes(synced, lambda disk: disk.exists("/a/b/f")) == {True}


def test_a_rename_is_atomic() -> None:
    def scenario(disk: SimDisk) -> None:
        for name in ("old", "new"):
            file = disk.open(f"/{name}", create=True)
            file.append([name.encode()])
            file.sync()
        disk.sync_dir("/")
        disk.rename("/new", "/old")

    def observe(disk: SimDisk) -> object:
        return tuple((name, disk.read_file(f"/{name}")) for name in disk.list_dir("/"))

    assert _outcomes(scenario, observe) == {(("new", b"new"), ("old", b"old")), (("old", b"new"),)}


def test_a_rename_across_directories_never_loses_or_doubles_the_file() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.make_dirs("/a")
        disk.make_dirs("/b")
        disk.sync_dir("/")
        file = disk.open("/a/f", create=True)
        file.sync()
        disk.rename("/a/f", "/b/f")
        disk.sync_dir("/b")

    assert _outcomes(scenario, lambda disk: (disk.exists("/a/f"), disk.exists("/b/f"))) == {(False, True)}


def test_changes_left_pending_by_another_directory_keep_their_order() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.make_dirs("/a")
        disk.make_dirs("/b")
        disk.sync_dir("/")
        disk.open("/a/first", create=True)
        disk.rename("/a/first", "/a/second")
        disk.sync_dir("/b")

    assert _outcomes(scenario, lambda disk: tuple(disk.list_dir("/a"))) == {(), ("first",), ("second",)}


def test_what_a_power_cut_undid_stays_undone() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.open("/f", create=True)
        disk.crash()
        survived = disk.exists("/f")
        disk.sync_dir("/")
        disk.crash()
        assert disk.exists("/f") == survived

    assert _outcomes(scenario, lambda disk: disk.exists("/f")) == {True, False}


def test_a_removal_needs_its_directory_synced() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.replace_file("/f", b"x")
        disk.remove("/f")

    assert _outcomes(scenario, _content("/f")) == {None, b"x"}


def test_replacing_a_file_is_durable_and_atomic() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.replace_file("/f", b"old")
        disk.replace_file("/f", b"new")

    assert _outcomes(scenario, _content("/f")) == {b"new"}


def test_replacing_a_file_without_sync_may_tear_it() -> None:
    def scenario(disk: SimDisk) -> None:
        disk.replace_file("/f", b"old")
        disk.replace_file("/f", b"new", sync=False)

    outcomes = _outcomes(scenario, _content("/f"))
    assert {b"old", b"new", b""} <= outcomes


def test_power_cut_between_any_two_operations_of_a_replacement() -> None:
    outcomes = []
    for operations in range(20):
        disk = SimDisk(operations)
        disk.replace_file("/f", b"old")
        disk.crash_after(operations)
        try:
            disk.replace_file("/f", b"new")
        except ProcessDied:
            with pytest.raises(ProcessDied):
                disk.exists("/f")
            disk.restart()
        outcomes.append(disk.read_file("/f"))
    assert outcomes[0] == b"old"
    assert outcomes[-1] == b"new"
    assert set(outcomes) == {b"old", b"new"}


def test_the_death_of_the_process_loses_nothing_written() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    file = disk.open("/d/f", create=True)
    file.append([b"unsynced"])
    disk.kill()
    assert disk.read_file("/d/f") == b"unsynced"


@pytest.mark.parametrize("end", [SimDisk.crash, SimDisk.kill])
def test_files_and_locks_die_with_the_process(end: Callable[[SimDisk], None]) -> None:
    disk = SimDisk()
    disk.replace_file("/f", b"x")
    file = disk.open("/f")
    old_lock = disk.lock("/lock")
    with pytest.raises(DiskLocked):
        disk.lock("/lock")
    end(disk)
    for use in (file.sync, lambda: file.read(0, 1), lambda: file.append([b"y"]), lambda: file.truncate(0)):
        with pytest.raises(ProcessDied):
            use()
    disk.lock("/lock")
    old_lock.release()
    with pytest.raises(DiskLocked):
        disk.lock("/lock")


def test_a_released_lock_can_be_taken() -> None:
    disk = SimDisk()
    disk.lock("/lock").release()
    disk.lock("/lock").release()


def test_injected_errors_leave_the_file_as_it_was() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    file = disk.open("/d/f", create=True)
    disk.fail("append", errno.ENOSPC, path="/d", times=2)
    disk.fail("sync", errno.EIO)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            file.append([b"x"])
    assert (file.size, disk.read_file("/d/f")) == (0, b"")
    file.append([b"x"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    disk.fail("append", errno.ENOSPC, path="/other")
    disk.fail("sync", errno.EIO, times=1000)
    file.append([b"y"])
    disk.heal()
    file.sync()


def test_a_flipped_bit_stays() -> None:
    disk = SimDisk()
    disk.replace_file("/f", bytes(10))
    disk.corrupt("/f", 3)
    disk.crash()
    data = disk.read_file("/f")
    assert data[3].bit_count() == 1
    assert sum(data) == data[3]


def test_closed_files_refuse_work() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.append([b"x"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=9)),
        st.tuples(st.just("truncate"), st.integers(0, 20)),
        st.tuples(st.just("sync"), st.none()),
    ),
    max_size=20,
)


@given(steps=STEPS, seed=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_what_was_synced_survives_whatever_comes_later(steps: list[tuple[str, object]], seed: int) -> None:
    disk = SimDisk(seed)
    file = disk.open("/f", create=True)
    disk.sync_dir("/")
    synced = b""
    untouched = 0
    for step, argument in steps:
        if isinstance(argument, bytes):
            file.append([argument])
        elif isinstance(argument, int):
            size = min(argument, file.size)
            file.truncate(size)
            untouched = min(untouched, size)
        else:
            assert step == "sync"
            file.sync()
            synced = disk.read_file("/f")
            untouched = len(synced)
    live = disk.read_file("/f")
    disk.crash()
    data = disk.read_file("/f")
    assert data[:untouched] == synced[:untouched]
    assert len(data) <= max(len(live), len(synced))


def test_a_full_disk_refuses_bytes_and_reads_on_until_there_is_room() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    file = disk.open("/data/log", create=True)
    file.append([b"before"])
    disk.replace_file("/data/big", bytes(100))
    disk.fill(10)
    file.append([b"ten", b"bytes"])
    with pytest.raises(OSError, match="No space left") as refused:
        file.append([b"three"])
    assert refused.value.errno == errno.ENOSPC
    assert file.size == 14
    assert disk.read_file("/data/log") == b"beforetenbytes"
    assert disk.usage("/data")[1] == 2
    with pytest.raises(OSError, match="No space left"):
        disk.replace_file("/data/checkpoint", b"0\n1\n")
    assert disk.read_file("/data/checkpoint.tmp") == b"0\n"
    assert disk.is_full
    with pytest.raises(OSError, match="No space left"):
        file.truncate(1000)
    disk.remove("/data/big")
    file.append([b"three"])
    disk.fill()
    disk.make_room()
    file.append([bytes(1000)])


def test_new_names_fit_onto_a_full_disk_only_sometimes() -> None:
    disk = SimDisk()
    disk.fill()
    refused = 0
    for number in range(40):
        try:
            disk.make_dirs(f"/dir-{number}")
            disk.open(f"/file-{number}", create=True)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            refused += 1
    assert 10 < refused < 40
    disk.open(f"/{disk.list_dir('/')[-1]}", create=True)


def test_a_file_in_the_way_of_a_directory_stays_until_it_is_cleared() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    disk.obstruct("/data/t-0")
    disk.crash()
    with pytest.raises(FileExistsError):
        disk.make_dirs("/data/t-0")
    with pytest.raises(NotADirectoryError):
        disk.open("/data/t-0/log", create=True)
    with pytest.raises(FileExistsError):
        disk.obstruct("/data/t-0")
    disk.clear("/data/t-0")
    disk.make_dirs("/data/t-0")
    disk.clear("/data/t-0")
    assert disk.list_dir("/data") == ["t-0"]


def test_an_unmounted_directory_is_empty_and_comes_back_as_it_was() -> None:
    disk = SimDisk()
    disk.make_dirs("/meta")
    disk.replace_file("/meta/log", b"records")
    disk.sync_dir("/")
    disk.unmount("/meta")
    assert disk.list_dir("/meta") == []
    disk.replace_file("/meta/other", b"hidden soon")
    disk.crash()
    disk.mount("/meta")
    assert disk.list_dir("/meta") == ["log"]
    assert disk.read_file("/meta/log") == b"records"
    disk.crash()
    assert disk.list_dir("/meta") == ["log"]
