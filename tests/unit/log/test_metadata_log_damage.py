"""Damage to metadata that was on disk stops the start, and the file stays as it is for whoever repairs it."""

from __future__ import annotations

import pytest
from log_kit import LogKit, fill

from ottla.config import BrokerConfig
from ottla.raft.metadata_log import METADATA_PARTITION, QuorumError, open_metadata_log
from ottla.raft.quorum_state import QuorumState, save_quorum_state

FIRST = "00000000000000000000.log"
CONFIG = BrokerConfig.from_properties({"node.id": "1", "log.dirs": "/data"})


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize(("byte", "bit"), [(1, 0x40), (7, 0x40), (8, 0x40), (11, 0x40), (16, 1), (23, 0x40)])
def test_nothing_is_cut_before_the_start_is_refused(clean: bool, byte: int, bit: int) -> None:
    kit = LogKit(directory=f"/data/{METADATA_PARTITION}")
    log = open_metadata_log(kit.runtime, CONFIG)
    fill(log, 21)
    log.close()
    save_quorum_state(kit.disk, kit.directory, QuorumState(synced_offset=21), (1,))
    whole = kit.content(FIRST)
    size = len(whole) // 21
    damaged = bytearray(whole)
    damaged[7 * size + byte] ^= bit
    kit.overwrite(FIRST, bytes(damaged))
    with pytest.raises(QuorumError) as refusal:
        open_metadata_log(kit.runtime, CONFIG, clean=clean)
    assert kit.content(FIRST) == damaged
    for part in (f"{kit.directory}/{FIRST}", "offset 7", f"byte {7 * size}", "restore the directory"):
        assert part in str(refusal.value)
    kit.overwrite(FIRST, whole)
    assert open_metadata_log(kit.runtime, CONFIG, clean=clean).next_offset == 21


def test_a_torn_end_that_was_never_synced_is_cut() -> None:
    kit = LogKit(directory=f"/data/{METADATA_PARTITION}")
    fill(open_metadata_log(kit.runtime, CONFIG), 21)
    save_quorum_state(kit.disk, kit.directory, QuorumState(synced_offset=20), (1,))
    kit.overwrite(FIRST, kit.content(FIRST)[:-9])
    assert open_metadata_log(kit.runtime, CONFIG).next_offset == 20
