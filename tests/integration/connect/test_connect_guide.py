"""The guide's commands and programs do what it says, and the reference is current."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_moving_records import committed_values, create, until
from worker_process import our_worker, settings_of

from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.connect.reference import page
from ottla.testing import InProcessBroker

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides/connect.md").read_text()
PROGRAMS = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE))


def test_a_file_goes_into_a_topic_and_out_again(tmp_path: Path) -> None:
    commands = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert len(commands) == 2
    start = commands[0].removeprefix("ottla ").split()
    with InProcessBroker() as broker:
        start[start.index("localhost:9092")] = broker.bootstrap_servers
        any_port = [
            "--override",
            "listeners=http://127.0.0.1:0",
            "--override",
            "offset.flush.interval.ms=200",
        ]
        argv = [sys.executable, "-m", "ottla.cli.main", *start, *any_port]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
            try:
                assert worker.stdout is not None
                address = worker.stdout.readline().removeprefix("Ready: http://").partition(",")[0]
                script = commands[1].replace("localhost:8083", address)
                done = subprocess.run(
                    ["sh", "-e", "-c", script],
                    cwd=tmp_path,
                    env=os.environ,
                    check=False,
                    capture_output=True,
                    text=True,
                )
                assert done.returncode == 0, done.stderr
                out = tmp_path / "out.txt"
                until(lambda: out.exists() and out.read_text() == "one\ntwo\n")
                worker.terminate()
                assert worker.wait(60) == 0
            finally:
                worker.kill()


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
