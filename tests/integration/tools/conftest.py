"""Tools run in this process against a broker of this process: fast enough for a test per flag."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import Cluster, normal, running_cluster

from ottla.cli.main import main
from ottla.testing import InProcessBroker


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and with it all that this process starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture
def tool(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `ottla TOOL …`; `stdin` is what the tool reads."""

    def run(name: str, *arguments: str, stdin: str = "") -> Outcome:
        (tmp_path / "stdin").write_text(stdin)
        capfd.readouterr()
        with (tmp_path / "stdin").open() as given:
            monkeypatch.setattr(sys, "stdin", given)
            try:
                status = main([name, *arguments])
            except SystemExit as ended:
                status = int(ended.code or 0)
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def on(tool: Run, broker: InProcessBroker) -> Run:
    """Runs a tool against the broker."""

    def run(name: str, *arguments: str, stdin: str = "") -> Outcome:
        return tool(name, *arguments, "--bootstrap-server", broker.bootstrap_servers, stdin=stdin)

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest, on: Run) -> str:
    """A topic of its own for each test, with one partition and ten records."""
    name = request.node.name.replace("[", "-").replace("]", "")[:80]
    assert on("topics", "--create", "--topic", name, "--partitions", "1").status == 0
    lines = io.StringIO()
    lines.writelines(f"k{number}\tv{number}\n" for number in range(10))
    written = on(
        "console-producer", "--topic", name, "--reader-property", "parse.key=true", stdin=lines.getvalue()
    )
    assert written.status == 0, written.err
    return name


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of Apache Kafka; tests that ask for it are marked so."""
    from bench.maven import PeerUnavailable

    with ExitStack() as stack:
        try:
            running = stack.enter_context(running_cluster(tmp_path_factory.mktemp("kafka") / "data"))
        except PeerUnavailable as error:
            pytest.skip(str(error))
        yield running


@pytest.fixture
def both(cluster: Cluster, tool: Run) -> Any:
    """Runs both tools with the same arguments; what they print, without its layout."""

    def run(name: str, *arguments: str, server: bool = True) -> tuple[list[str], list[str]]:
        place = ("--bootstrap-server", cluster.bootstrap_servers) if server else ()
        leads = name in {"features", "metadata-quorum", "transactions"}
        words = (*place, *arguments) if leads else (*arguments, *place)
        theirs = cluster.theirs(name, *words)
        ours = tool(name, *words)
        assert ours.status == theirs.returncode, ours.err
        return normal(ours.out), normal(theirs.stdout)

    return run
