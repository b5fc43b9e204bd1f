"""The test's side of the agents: start them, have members join and leave, wait for what they report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1]
NODE_FOLDER = FOLDER.parent / "node"
WAIT_S_MAX = 30.0

Partition = tuple[str, int]


@dataclass(slots=True)
class Journal:
    """What the members of one group reported, over all agents."""

    group: str
    assigned: dict[str, list[Partition]] = field(default_factory=dict)
    """By the members that are in the group and have been told of an assignment."""
    delivered: list[tuple[float, str, Partition, int]] = field(default_factory=list)
    """When, to which member, from where, which offset."""
    committed: list[tuple[float, str, Partition, int]] = field(default_factory=list)
    """When the member knew, which member, where, the offset to read next."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, event: dict[str, Any]) -> None:
        member, at = event["member"], event["at"]
        with self.changed:
            match event["event"]:
                case "assigned":
                    self.assigned[member] = [(topic, number) for topic, number in event["partitions"]]
                case "delivered":
                    self.delivered += [(at, member, (t, p), offset) for t, p, offset in event["records"]]
                case "committed":
                    self.committed += [(at, member, (t, p), offset) for t, p, offset in event["positions"]]
                case "refused":
                    self.refused.append((member, event["reason"]))
                case "left":
                    self.left.add(member)
                    self.assigned.pop(member, None)
                case "failed":
                    self.failures.append(f"{member}: {event['reason']}")
            self.changed.notify_all()

    def gone(self, members: Sequence[str]) -> None:
        with self.changed:
            for member in members:
                self.assigned.pop(member, None)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S_MAX) -> None:
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not condition():
                assert not self.failures, self.failures[0]
                remaining = deadline - time.monotonic()
                assert remaining > 0, f"{self.group}: not within {timeout_s} s: {what}; {self.summary()}"
                self.changed.wait(remaining)

    def wait_delivered(self, expected: set[tuple[Partition, int]]) -> None:
        self.wait(lambda: self.seen() >= expected, f"delivery of {len(expected)} records")

    def wait_committed(self, count: int) -> None:
        """Commits more than there are now."""
        target = len(self.committed) + count
        self.wait(lambda: len(self.committed) >= target, f"{count} more commits")

    def seen(self) -> set[tuple[Partition, int]]:
        return {(where, offset) for _, _, where, offset in self.delivered}

    def delivered_after_commit(self) -> list[tuple[str, Partition, int]]:
        """Records that a member got although it was already known that the group is done with them."""
        events = [(at, True, member, where, offset) for at, member, where, offset in self.delivered]
        events += [(at, False, member, where, offset) for at, member, where, offset in self.committed]
        done: dict[Partition, int] = {}
        again = []
        for _, is_delivery, member, where, offset in sorted(events):
            if not is_delivery:
                done[where] = max(offset, done.get(where, 0))
            elif offset < done.get(where, 0):
                again.append((member, where, offset))
        return again

    def summary(self) -> str:
        owned = {member: [number for _, number in items] for member, items in self.assigned.items()}
        return (
            f"assigned {owned}, {len(self.seen())} records delivered, {len(self.committed)} commits, "
            f"refused {self.refused[-3:]}, left {sorted(self.left)}"
        )


class Agent:
    """A process with members of groups in it."""

    def __init__(self, client: str, bootstrap_servers: str) -> None:
        self.client = client
        self._members: list[tuple[Journal, str]] = []
        self._journals: dict[str, Journal] = {}
        self._process = subprocess.Popen(
            [*_command(client), bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(FOLDER)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def join(self, journal: Journal, member: str, topics: Sequence[str], assignor: str | None = None) -> None:
        self._journals[journal.group] = journal
        self._members.append((journal, member))
        self._send({"join": member, "group": journal.group, "topics": list(topics), "assignor": assignor})

    def leave(self, member: str) -> None:
        self._send({"leave": member})

    def kill(self) -> None:
        """Its members vanish without a word to the coordinator."""
        self.close()
        for journal, member in self._members:
            journal.gone([member])

    def freeze(self) -> None:
        """Its members miss heartbeats, and know nothing of that when they are thawed."""
        self._process.send_signal(signal.SIGSTOP)
        for journal, member in self._members:
            journal.gone([member])

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, command: dict[str, object]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            # A killed agent may leave half a line.
            if line.endswith("\n"):
                event = json.loads(line)
                self._journals[event["group"]].note(event)


def _command(client: str) -> list[str]:
    if client != "kafkajs":
        return [sys.executable, str(FOLDER / "group_members" / "agent.py"), client]
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (NODE_FOLDER / "node_modules").is_dir():
        pytest.skip("the Node.js clients are not installed (npm ci in tests/integration/node)")
    return [node, str(NODE_FOLDER / "kafkajs_members.js")]
