"""Frames that are none, before and after a login, and guessed passwords.

The soak test does the same a hundred thousand times and looks at latencies; see `bench.hostile`.
"""

from __future__ import annotations

from bench.hostile import MEMORY_GROWTH_MAX, MIB, Load, measuring


def test_strangers_end_nothing_but_their_own_connections() -> None:
    with measuring(quiet_s=0.5, settle_s=0) as measured:
        before = measured.measure("frames before login", Load(900, 900))
        after = measured.measure("frames after login", Load(270, 270))
        guesses = measured.measure("wrong passwords", Load(100, 200))
        assert measured.finish() == 0
        log = measured.broker.log
    assert before.done.outcomes.total() == 900
    assert before.done.outcomes["closed"] > 300
    assert after.done.outcomes.total() == 270
    assert guesses.done.outcomes == {"refused": 100}
    growth = max(each.memory_peak for each in (before, after, guesses)) - measured.memory_at_first
    assert growth < MEMORY_GROWTH_MAX, f"{growth / MIB:.0f} MiB"
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
