"""The examples that are a log and little else: a ledger, and a replicated key-value store."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from confluent_kafka import KafkaException, Producer

from ottla.testing import InProcessBroker, free_ports

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def load_example(path: str) -> ModuleType:
    name = "example_" + path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ledger = load_example("ledger/ledger.py")
keyvalue = load_example("keyvalue/node.py")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


def test_balances_are_what_happened(servers: str) -> None:
    with ledger.Ledger(servers, snapshot_every=5) as first:
        first.deposit("ann", 10_000)
        for _ in range(10):
            first.transfer("ann", "bob", 100)
        with pytest.raises(ledger.Refused, match=r"ann has 90\.00, which is less than 90\.01"):
            first.withdraw("ann", 9_001)
        with pytest.raises(ledger.Refused):
            first.deposit("ann", 0)
        assert first.balances == {"ann": 9_000, "bob": 1_000}
        with ledger.Ledger(servers) as second:
            assert second.balances == first.balances
            assert second.replayed < 21, "snapshots were not used"
            with pytest.raises(KafkaException):
                first.deposit("ann", 1)
            second.withdraw("bob", 1_000)
            assert second.balances == {"ann": 9_000, "bob": 0}
    sums = {"deposited": 0, "withdrawn": 0}
    for event in ledger.history(servers, "bob"):
        sums[event.kind] += event.cents
    assert sums == {"deposited": 1_000, "withdrawn": 1_000}


@contextmanager
def keyvalue_node(servers: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, EXAMPLES / "keyvalue/node.py", "--bootstrap-server", servers]
    process = subprocess.Popen([*command, "--port", str(port)])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"http://localhost:{port}/status")
                break
            except httpx.TransportError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def test_nodes_agree(servers: str) -> None:
    ports = free_ports("127.0.0.1", 2)
    one, two = (f"http://localhost:{port}/keys/colour" for port in ports)
    with ExitStack() as stack:
        stack.enter_context(keyvalue_node(servers, ports[0]))
        with keyvalue_node(servers, ports[1]) as second:
            version = httpx.put(one, json={"value": "green"}).json()["version"]
            wins = httpx.put(two, json={"value": "blue", "version": version})
            loses = httpx.put(one, json={"value": "red", "version": version})
            assert (wins.status_code, loses.status_code) == (200, 409)
            assert httpx.get(one).json() == httpx.get(two).json() == wins.json()
            assert httpx.put(one, json={"version": 1}).status_code == 400
            second.kill()
            second.wait()
        assert httpx.put(one, json={"value": "yellow"}).status_code == 200
        stack.enter_context(keyvalue_node(servers, ports[1]))
        assert httpx.get(two).json()["value"] == "yellow"
        assert httpx.delete(two).status_code == 200
        assert httpx.get(two).status_code == 404


def test_what_is_no_command_changes_nothing(servers: str) -> None:
    [port] = free_ports("127.0.0.1", 1)
    with keyvalue_node(servers, port):
        producer = Producer({"bootstrap.servers": servers})
        for key, value in (
            ("k", b"{"),
            ("k", b"[]"),
            ("k", b'{"version": 1}'),
            ("k", b"\xff"),
            (None, b"{}"),
        ):
            producer.produce(keyvalue.TOPIC, value, key)
        assert producer.flush(10) == 0
        url = f"http://localhost:{port}/keys/after"
        assert httpx.put(url, json={"value": 1}, timeout=60).status_code == 200
        assert httpx.get(f"http://localhost:{port}/keys/k").status_code == 404


@pytest.mark.parametrize(
    ("text", "cents"),
    [("12", 1200), ("0.1", 10), ("12.50", 1250), ("12.505", None), ("nan", None), ("x", None)],
)
def test_amounts_are_whole_cents(text: str, cents: int | None) -> None:
    if cents is None:
        with pytest.raises(argparse.ArgumentTypeError, match="is not an amount"):
            ledger.to_cents(text)
    else:
        assert ledger.to_cents(text) == cents


def test_a_state_is_the_same_whoever_applies_it() -> None:
    commands = [
        ("k", {"value": 1}),
        ("k", {"value": 2, "version": 0}),
        ("k", None),
        ("k", {"value": 3, "version": 0}),
    ]
    states = []
    for _ in range(2):
        state = keyvalue.State()
        taken = [state.apply(key, command, offset) for offset, (key, command) in enumerate(commands)]
        assert taken == [True, False, True, True]
        states.append(state.entries)
    assert states[0] == states[1] == {"k": (3, 4)}
