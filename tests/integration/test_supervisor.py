"""Processes that end, and what is done about it; a cluster on one machine by one command."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.cli.broker import supervisor
from ottla.cli.broker.supervisor import Command, FailedToStart, Supervisor

WAIT_S = 30
READY = "print('Ready: 127.0.0.1:1 in 0.01 s', flush=True)"
# Ends with status 0 when it is told to, as a broker does.
UNTIL_TOLD = f"import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); {READY}; time.sleep(60)"


class Told:
    """What the supervisor said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def wait_for(self, pattern: str, count: int = 1) -> None:
        async with asyncio.timeout(WAIT_S):
            while sum(re.search(pattern, line) is not None for line in self.lines) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def told() -> Told:
    return Told()


def supervised(told: Told, *scripts: str) -> Supervisor:
    commands = [Command(number, [sys.executable, "-c", script]) for number, script in enumerate(scripts, 1)]
    return Supervisor(commands, told.lines.append)


def run(scenario: Callable[[], asyncio.Future[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario()

    asyncio.run(main())


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_FIRST_S", 0.02)
    monkeypatch.setattr(supervisor, "PAUSE_MAX_S", 0.1)


@pytest.mark.usefixtures("hurried")
def test_who_dies_is_started_again_after_longer_and_longer_pauses(told: Told) -> None:
    async def scenario() -> None:
        both = supervised(told, UNTIL_TOLD, f"import sys; {READY}; sys.exit(3)")
        running = asyncio.ensure_future(both.run())
        await both.wait_ready()
        steady = both.processes[1]
        await told.wait_for("broker 2 ended with status 3; starting it again in 0.1 s", 2)
        pauses = re.findall(r"in ([\d.]+) s", " ".join(told.lines))
        assert pauses[:4] == ["0.02", "0.04", "0.08", "0.1"]
        assert any("broker 2 is up again" in line for line in told.lines)
        assert both.processes[1] == steady
        os.kill(steady, signal.SIGKILL)
        await told.wait_for("broker 1 was ended by SIGKILL; starting it again")
        await told.wait_for("broker 1 is up again")
        both.stop()
        await running
        assert both.processes == {}

    run(scenario)


def test_who_is_told_to_stop_is_left_alone(told: Told) -> None:
    async def scenario() -> None:
        both = supervised(told, UNTIL_TOLD, UNTIL_TOLD)
        running = asyncio.ensure_future(both.run())
        await both.wait_ready()
        os.kill(both.processes[2], signal.SIGTERM)
        await told.wait_for("broker 2 was stopped; the others go on")
        assert set(both.processes) == {1}
        os.kill(both.processes[1], signal.SIGTERM)
        await running

    run(scenario)


def test_who_cannot_start_at_all_ends_everybody(told: Told) -> None:
    async def scenario() -> None:
        both = supervised(told, UNTIL_TOLD, "raise SystemExit(1)")
        with pytest.raises(FailedToStart, match="broker 2 did not start: it ended with status 1"):
            await both.run()
        assert both.processes == {}

    run(scenario)


def test_who_does_not_stop_is_killed(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_S_MAX", 0.1)

    async def scenario() -> None:
        deaf = supervised(
            told, f"import signal, time; signal.signal(15, signal.SIG_IGN); {READY}; time.sleep(60)"
        )
        running = asyncio.ensure_future(deaf.run())
        await deaf.wait_ready()
        deaf.stop()
        await running
        assert any("has not stopped after 0.1 s; killing it" in line for line in told.lines)

    run(scenario)


class Started:
    """`ottla start --brokers`, with what it has said so far."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "start", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.out: list[str] = []
        self.err: list[str] = []
        streams = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._readers = [threading.Thread(target=self._read, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Iterator[str], lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))  # type: ignore[attr-defined]

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + WAIT_S
        while True:
            for line in (*self.out, *self.err):
                if found := re.search(pattern, line):
                    return found
            assert time.monotonic() < deadline, f"no {pattern} in {self.out} {self.err}"
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.terminate()
        status = self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return status


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def run_it(*arguments: str) -> Started:
        started.append(Started(*arguments))
        return started[-1]

    yield run_it
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()


def test_a_cluster_of_one_by_one_command(start: Callable[..., Started], tmp_path: Path) -> None:
    """Down to a broker that dies, and one command to stop it all."""
    directory = tmp_path / "cluster"
    arguments = ("--brokers", "1", "--port", "0", "--data-dir", str(directory), "--rack", "cellar")
    cluster = start(*arguments, "--set", "num.partitions=2")
    found = cluster.wait_for(r"Broker 1: (127.0.0.1:\d+), process (\d+), leads no partition")
    cluster_id = cluster.wait_for(r"Cluster: (\S+), its controller is broker 1")[1]
    assert any(line.startswith(f"Ready: {found[1]} in ") for line in cluster.out)
    settings = (directory / "broker-1/server.properties").read_text()
    assert "broker.rack=cellar\n" in settings
    assert "num.partitions=2\n" in settings
    os.kill(int(found[2]), signal.SIGKILL)
    cluster.wait_for("broker 1 was ended by SIGKILL; starting it again in 0.5 s")
    cluster.wait_for("broker 1 is up again")
    second = start(*arguments)
    assert second.process.wait(WAIT_S) == 1
    second.wait_for("in use by another process")
    stopped = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "stop", "--data-dir", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert stopped.returncode == 0, stopped.stderr
    assert cluster.process.wait(WAIT_S) == 0
    # The file alone starts the broker, which is still of the same cluster.
    alone = start(str(directory / "broker-1/server.properties"))
    assert alone.wait_for(r"Cluster: (\S+)")[1] == cluster_id
    assert alone.stop() == 0


def test_brokers_end_with_a_supervisor_that_is_killed(start: Callable[..., Started], tmp_path: Path) -> None:
    cluster = start("--brokers", "1", "--port", "0", "--data-dir", str(tmp_path / "cluster"))
    process = int(cluster.wait_for(r"Broker 1: .*process (\d+)")[1])
    cluster.process.kill()
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "a broker without a supervisor"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--brokers", "0"), "must be a number from 1 to 9"),
        (("--brokers", "1", "--port", "65535"), "1 brokers need the ports up to 65536; choose a lower one"),
        (("--brokers", "1", "--set", "node.id=7"), "node.id=7: of several brokers each is given its own"),
        (("--brokers", "1", "--set", "log.segment.bytes=1"), "log.segment.bytes=1: must be at least"),
        (("--rack", "r"), "--rack is for --brokers"),
    ],
)
def test_what_cannot_be_started_is_said(
    start: Callable[..., Started], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = start(*arguments, "--data-dir", str(tmp_path / "cluster"))
    assert refused.process.wait(WAIT_S) in {1, 2}
    refused.wait_for(re.escape(message))


def test_nobody_reads_what_is_said_and_brokers_go_on(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "ottla.cli.main", "start", "--brokers", "1", "--port", "0"]
    cluster = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "cluster")], stdout=subprocess.PIPE, stderr=writing, text=True
    )
    try:
        os.close(writing)
        assert cluster.stdout is not None
        told = ""
        while not (line := cluster.stdout.readline()).startswith("Broker 1"):
            assert line, "it ended"
            told += line
        os.close(reading)
        broker = int(re.search(r"process (\d+)", line)[1])  # type: ignore[index]
        os.kill(broker, signal.SIGKILL)
        address = re.search(r"Ready: (\S+)", told)[1]  # type: ignore[index]
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S)
        assert cluster.poll() is None
    finally:
        cluster.terminate()
        assert cluster.wait(WAIT_S) == 0


def test_directories_of_others_are_refused(start: Callable[..., Started], tmp_path: Path) -> None:
    cluster = start("--brokers", "1", "--port", "0", "--data-dir", str(tmp_path / "cluster"))
    cluster.wait_for("Ready")
    assert cluster.stop() == 0
    more = start("--brokers", "2", "--port", "0", "--data-dir", str(tmp_path / "cluster"))
    assert more.process.wait(WAIT_S) == 1
    single = start("--brokers", "1", "--port", "0", "--data-dir", str(tmp_path / "cluster/broker-1/data"))
    assert single.process.wait(WAIT_S) == 1
    single.wait_for("has the data of a single broker; choose another --data-dir")
    alone = start("--port", "0", "--data-dir", str(tmp_path / "cluster"))
    assert alone.process.wait(WAIT_S) == 1
    alone.wait_for("has the data of 1 brokers; say --brokers 1, or run one of them: ottla start ")
