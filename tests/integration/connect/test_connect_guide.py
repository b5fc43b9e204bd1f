"""The guide's program does what it says; the reference is current. Its commands: tests/integration/guides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_moving_records import committed_values, create
from worker_process import our_worker, settings_of

from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.connect.reference import page
from ottla.testing import InProcessBroker

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides/connect.md").read_text()
PROGRAMS = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE))


def test_the_source_of_the_guide_counts_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "countdown.py").write_text(PROGRAMS["countdown.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = Plugins([*installed().of(*Kind), Listed(Kind.SOURCE, "Countdown", "countdown:Countdown")])
    with InProcessBroker() as broker, our_worker(settings_of(broker.bootstrap_servers), plugins) as worker:
        create(worker.address, "down", "Countdown", topic="down", **{"from": "3"})
        values = [json.loads(message.value())["payload"] for message in committed_values(broker, "down", 3)]
        assert values == [2, 1, 0]


def test_the_reference_is_current() -> None:
    own = [each for kind in Kind for each in installed().of(kind) if each.target.startswith("ottla.")]
    assert (DOCS / "reference/connect.md").read_text() == page(Plugins(own))
