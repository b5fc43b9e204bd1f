"""The same log on a real file system, where large reads are mapped and not copied."""

from __future__ import annotations

from pathlib import Path

from log_kit import LogKit, fill, offsets_in, read_all, values_in

from ottla.log.scrub import verify
from ottla.runtime.disk import PosixDisk


def test_appending_reading_and_recovering_on_a_real_disk(tmp_path: Path) -> None:
    kit = LogKit(PosixDisk(), f"{tmp_path}/orders-3", segment_bytes=300_000, index_interval_bytes=4096)
    log = kit.open()
    fill(log, 1000, size=900)
    assert len(log.segments) > 3
    # Over the threshold from which the file is mapped.
    data = log.read(log.segments.active.base_offset - 200, 100_000, upto=log.next_offset)
    assert isinstance(data, memoryview)
    assert len(data) > 90_000
    assert read_all(log, max_bytes=100_000) == [(i, i) for i in range(1000)]
    assert set(values_in(data)) == {bytes(900)}

    fill(log, 1, size=900)
    assert offsets_in(data)[0][0] == log.segments.active.base_offset - 200, "views outlive appends"
    log.release()

    path = tmp_path / "orders-3" / Path(log.segments.active.path).name
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    recovered = kit.open(clean=False, recovery_point=500)
    assert recovered.next_offset == 1000
    assert read_all(recovered) == [(i, i) for i in range(1000)]
    assert list(verify(recovered)) == []
    recovered.close()
    reopened = kit.open()
    assert reopened.next_offset == reopened.recovery_point == 1000
    reopened.truncate_to(321)
    assert read_all(reopened) == [(i, i) for i in range(321)]
    reopened.close()
