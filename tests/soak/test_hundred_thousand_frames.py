"""A hundred thousand bad frames before and after a login, and everything else that strangers may try.

Others are served within three times their usual 99th percentile, memory stays bounded and nothing crashes.
The figures need a machine with nothing else to do; `python -m bench.hostile` prints the same ones.
"""

from __future__ import annotations

import pytest
from bench.hostile import FULL, MEMORY_GROWTH_MAX, MIB, RATIO_MAX, measuring, report

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def test_strangers_slow_down_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    with measuring() as measured:
        outcomes = [measured.measure(name, load) for name, load in FULL.items()]
        status = measured.finish()
        log = measured.broker.log
    with capfd.disabled():
        report(outcomes)
    assert status == 0
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
    growth = max(each.memory_peak for each in outcomes) - measured.memory_at_first
    assert growth < MEMORY_GROWTH_MAX, f"{growth / MIB:.0f} MiB"
    slowed = {each.attack: round(each.ratio, 1) for each in outcomes if each.ratio > RATIO_MAX}
    assert not slowed, f"p99 as multiples of before: {slowed}"
