"""Workers of one group share connectors, and take over from one that dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from test_moving_records import PLAIN, ask, committed_values, create, until
from worker_process import our_worker, settings_of

from ottla.testing import InProcessBroker

SOURCES = [f"source-{number}" for number in range(6)]


def test_a_worker_takes_over_what_another_had_when_it_was_killed(tmp_path: Path) -> None:
    with InProcessBroker() as broker:
        given = settings_of(broker.bootstrap_servers) | PLAIN
        given |= {
            "offset.storage.partitions": "25",
            "session.timeout.ms": "6000",
            "exactly.once.source.support": "enabled",
        }
        (tmp_path / "worker.properties").write_text("".join(f"{name}={given[name]}\n" for name in given))
        for name in SOURCES:
            (tmp_path / name).write_text("one\ntwo\n")
        argv = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "connect-distributed",
            f"{tmp_path}/worker.properties",
        ]
        with (
            our_worker(given) as worker,
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other,
        ):
            try:
                assert other.stdout is not None
                ready = other.stdout.readline()
                assert ready.startswith("Ready: http://127.0.0.1:")
                there = ready.removeprefix("Ready: http://").partition(",")[0]
                for name in SOURCES:
                    create(worker.address, name, "FileSource", file=f"{tmp_path}/{name}", topic=name)

                def owners() -> dict[str, str]:
                    known = ask(worker.address, "GET", "/connectors?expand=status")
                    return {
                        name: row["status"]["tasks"][0]["worker_id"]
                        for name, row in known.items()
                        if [task["state"] for task in row["status"]["tasks"]] == ["RUNNING"]
                    }

                until(
                    lambda: (
                        len(owners()) == len(SOURCES) and set(owners().values()) == {worker.address, there}
                    )
                )
                theirs = next(name for name, owner in owners().items() if owner == there)
                # A request about a task of the other worker is answered by it.
                ask(worker.address, "POST", f"/connectors/{theirs}/tasks/0/restart")

                def told() -> list[str]:
                    lines = ask(worker.address, "GET", f"/connectors/{theirs}/logs")["lines"]
                    return [line["text"] for line in lines if line["worker"] == there]

                # So are its lines.
                until(lambda: f"task {theirs}-0 is to stop" in told())
                other.send_signal(signal.SIGKILL)
                other.wait()
                assert there in ask(worker.address, "GET", f"/connectors/{theirs}/logs")["missing"]
                for name in SOURCES:
                    with (tmp_path / name).open("a") as more:
                        more.write("three\n")
                until(lambda: set(owners().values()) == {worker.address} and len(owners()) == len(SOURCES))
                for name in SOURCES:
                    found = [json.loads(message.value()) for message in committed_values(broker, name, 3)]
                    assert found == ["one", "two", "three"]
            finally:
                other.kill()
