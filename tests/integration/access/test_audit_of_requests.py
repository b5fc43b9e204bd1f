"""What was refused is written down, with who, from where, what, and by which rule."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from matrix import ask, set_rules, topic
from principals import Start

from ottla.wire.acls import Operation
from ottla.wire.api import ApiKey


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def entries(path: Path, count: int) -> list[dict[str, Any]]:
    """Waits until there are so many."""
    deadline = time.monotonic() + 30
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        assert time.monotonic() < deadline, lines
        time.sleep(0.02)


METADATA = {"topics": [{"name": "orders", "topic_id": None}], "allow_auto_topic_creation": False}
CREATION = {
    "topics": [
        {"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    ],
    "timeout": 20_000,
}


def test_what_is_refused(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with (
        start(ottla_audit_log=str(path)) as servers,
        connect(servers["admin"]) as admin,
        connect(servers["alice"]) as alice,
    ):
        ask(admin, ApiKey.CREATE_TOPICS, 7, CREATION)
        # Who only looks around is refused nothing.
        ask(alice, ApiKey.METADATA, 12, {"topics": None})
        ask(alice, ApiKey.METADATA, 12, METADATA)
        (entry,) = entries(path, 1)
        assert entry.pop("time").endswith("+00:00")
        assert entry == {
            "allowed": False,
            "principal": "User:alice",
            "host": "127.0.0.1",
            "listener": "ALICE",
            "clientId": "matrix",
            "api": "METADATA",
            "operation": "DESCRIBE",
            "resourceType": "TOPIC",
            "resource": "orders",
            "reason": "DefaultDeny",
        }
        set_rules(admin, (topic(Operation.DESCRIBE, "orders"),))
        ask(alice, ApiKey.METADATA, 12, METADATA)
        ask(alice, ApiKey.CREATE_TOPICS, 7, CREATION)
        last = entries(path, 2)[-1]
        assert (last["api"], last["operation"], last["resource"]) == ("CREATE_TOPICS", "CREATE", "orders")


def test_what_administrators_did_if_asked_for(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with (
        start(ottla_audit_log=str(path), ottla_audit_allowed="administrative") as servers,
        connect(servers["admin"]) as admin,
        connect(servers["alice"]) as alice,
    ):
        set_rules(admin, (topic(Operation.CREATE, "orders"),))
        ask(alice, ApiKey.METADATA, 12, {"topics": None})
        ask(alice, ApiKey.CREATE_TOPICS, 7, CREATION)
        deleted, created, used = entries(path, 3)
        assert (deleted["api"], deleted["principal"], deleted["reason"]) == (
            *("DELETE_ACLS", "User:admin", "SuperUser"),
        )
        assert created["api"] == "CREATE_ACLS"
        assert used["allowed"]
        assert used["rule"] == {
            "resourceType": "TOPIC",
            "resource": "orders",
            "patternType": "LITERAL",
            "principal": "User:alice",
            "host": "*",
            "operation": "CREATE",
            "permission": "ALLOW",
        }
