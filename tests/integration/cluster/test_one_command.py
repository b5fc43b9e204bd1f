"""`ottla start --brokers 3`: one command, three processes, one cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerCluster

WAIT_S = 60
pytestmark = pytest.mark.timeout(240)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "ottla.cli.main", "start", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"ended without {pattern}")


def test_one_command_runs_three_brokers(tmp_path: Path) -> None:
    arguments = ("--brokers", "3", "--port", "0", "--data-dir", str(tmp_path / "cluster"))
    with started(*arguments) as process:
        servers = heard(process, r"Ready: (\S+) in")[1]
        assert servers.count(",") == 2
        pids = [int(heard(process, rf"Broker {number}: .*process (\d+)")[1]) for number in (1, 2, 3)]
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("kept", 3, 3)])["kept"].result(30)
        os.kill(pids[1], signal.SIGKILL)
        heard(process, "broker 2 was ended by SIGKILL; starting it again in 0.5 s")
        heard(process, "broker 2 is up again")
        process.terminate()
        assert process.wait(WAIT_S) == 0
    # The same cluster again: the brokers lead what there was.
    with started(*arguments) as process:
        heard(process, r"its controller is broker [123]")
        leads = [heard(process, rf"Broker {number}: .*leads (.*)")[1] for number in (1, 2, 3)]
        assert any("kept-" in lead for lead in leads), leads
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_brokers_that_were_started_one_by_one_are_stopped_together(tmp_path: Path) -> None:
    with BrokerCluster(data_dir=str(tmp_path)) as cluster:
        command = [sys.executable, "-m", "ottla.cli.main", "stop", "--data-dir", str(tmp_path)]
        stopped = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
        assert stopped.stdout.count("Stopped the broker of ") == 3
        assert not any(broker.is_running for broker in cluster.brokers.values())
