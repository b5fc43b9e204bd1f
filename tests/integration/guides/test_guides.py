"""What guides say of crashes and of strangers is so, also where a reader would not look."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.testing import broker

GUIDES = Path(__file__).parents[3] / "docs/guides"


# Stands in for the reader's own work: notes each record, and dies in the middle of the third, once.
DYING_WORK = """
import os, pathlib, sys

seen = pathlib.Path("seen")

def process(value: bytes) -> None:
    before = seen.read_text().split() if seen.exists() else []
    seen.write_text(" ".join([*before, value.decode()]))
    if value == b"3" and "3" not in before or value == b"5":
        os._exit(9)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [("at_most_once.py", "1 2 3 4 5"), ("at_least_once.py", "1 2 3 3 4 5")],
)
def test_a_crash_means_what_the_consuming_guide_says(tmp_path: Path, program: str, expected: str) -> None:
    guide = (GUIDES / "consuming.md").read_text()
    programs = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE))
    assert programs.keys() == {"orders.py", "at_most_once.py", "at_least_once.py", "barista.py"}
    (tmp_path / program).write_text(programs[program])
    (tmp_path / "orders.py").write_text(DYING_WORK)
    with broker(
        set={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    ) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(1, 6):
            producer.produce("orders", str(number).encode())
        producer.flush(10)
        environment = os.environ | {"BOOTSTRAP_SERVERS": running.bootstrap_servers}
        for _ in range(2):
            died = subprocess.run(
                [sys.executable, program], check=False, cwd=tmp_path, env=environment, timeout=100
            )
            assert died.returncode == 9
    assert (tmp_path / "seen").read_text() == expected


# Stands in for the reader's own work: dies in the middle of the third order, twice.
DYING_INVOICES = """
import os, pathlib

lives = pathlib.Path("lives")

def invoice(order: bytes) -> bytes:
    if order == b"3" and (died := len(lives.read_text()) if lives.exists() else 0) < 2:
        lives.write_text("x" * (died + 1))
        os._exit(9)
    return b"invoice for " + order
"""


def test_the_exactly_once_guide_does_what_it_says(tmp_path: Path) -> None:
    guide = (GUIDES / "exactly-once.md").read_text()
    programs = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE))
    assert programs.keys() == {"invoices.py", "exactly_once.py", "read_invoices.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "invoices.py").write_text(DYING_INVOICES)
    with broker(set={"group.initial.rebalance.delay.ms": "0"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(1, 6):
            producer.produce("orders", str(number).encode())
        producer.flush(10)
        environment = os.environ | {"BOOTSTRAP_SERVERS": running.bootstrap_servers}

        def start(program: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )

        for _ in range(2):
            assert start("exactly_once.py").wait(60) == 9
        assert (tmp_path / "lives").read_text() == "xx"
        worker, reader = start("exactly_once.py"), start("read_invoices.py")
        try:
            assert reader.stdout is not None
            read = [reader.stdout.readline().strip() for _ in range(5)]
            assert read == [f"invoice for {number}" for number in range(1, 6)]
            # One more, to see that none of the earlier ones comes again before it.
            producer.produce("orders", b"6")
            producer.flush(10)
            assert reader.stdout.readline().strip() == "invoice for 6"
            assert worker.poll() is None
        finally:
            for process in (worker, reader):
                process.kill()
                process.communicate()


def test_the_security_guide_does_what_it_says(tmp_path: Path) -> None:
    guide = (GUIDES / "security.md").read_text()
    commands = re.findall(r"^```sh\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)[0]
    tools = ("ottla", "kafka-configs", "kafka-topics", "kafka-console-producer", "kafka-console-consumer")
    for tool in tools:
        named = tool.removeprefix("ottla")
        (tmp_path / tool).write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main {named} "$@"\n')
        (tmp_path / tool).chmod(0o755)
    # Any free ports, and the reader waits until the brokers say that they are ready.
    script = commands.replace("ottla start", "ottla start --port 0").replace("localhost:9092", "$server")
    waiting = (
        "> ready &\nwhile ! grep -q ^Ready: ready; do kill -0 $!; sleep 0.1; done\n"
        "server=$(sed -n 's/^Ready: \\([^,]*\\),.*/\\1/p' ready)"
    )
    script = re.sub(r"&$", lambda _: waiting, script, flags=re.MULTILINE)
    script += (
        "kafka-console-consumer --bootstrap-server $server --command-config closed/client.properties "
        "--topic orders --from-beginning --max-messages 1\n"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def shell(text: str, out: str) -> int:
        # Not pipes: the brokers that it leaves behind would hold them open.
        with open(tmp_path / out, "w") as output:
            return subprocess.run(
                ["sh", "-e", "-c", text],
                check=False,
                cwd=tmp_path,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT if out == "stopped" else None,
                timeout=100,
            ).returncode

    try:
        assert shell(script, "said") == 0
        assert (tmp_path / "said").read_text().splitlines()[-3:] == [
            "Completed updating config for user alice.",
            "Created topic orders.",
            "hidden",
        ]
    finally:
        shell("ottla stop --data-dir closed/data", "stopped")


def test_the_installing_guide_lists_all_extras() -> None:
    project = tomllib.loads((GUIDES.parents[1] / "pyproject.toml").read_text())["project"]
    listed = re.findall(r"^\| `([a-z]+)` \|", (GUIDES / "installing.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(project["optional-dependencies"].keys() - {"dev", "docs"})
