"""Thousands of connections that announce large requests and send nothing of them."""

from __future__ import annotations

import struct
import time

import pytest
from bystander import ANSWER_SECONDS_MAX, MIB, Bystander, allow_connections, memory_bytes
from raw_client import API_VERSIONS, RawConnection, framed

import ottla.testing
from ottla.testing import BrokerProcess

CONNECTIONS = 5000
HALF_SENT = 100
ANNOUNCED = struct.pack(">i", 100 * MIB)
MEMORY_BYTES_MAX = 150 * MIB
"""Some kilobytes for each connection, whatever it announces."""


def test_announcements_cost_nothing_and_hold_up_nobody() -> None:
    allow_connections(CONNECTIONS)
    with BrokerProcess() as broker, Bystander(broker.bootstrap_servers) as bystander:
        before = memory_bytes(broker.pid)
        attackers = [RawConnection(broker.bootstrap_servers) for _ in range(CONNECTIONS)]
        for attacker in attackers:
            attacker.send(ANNOUNCED)
        bystander.assert_was_served()
        growth = memory_bytes(broker.pid) - before
        for attacker in attackers:
            attacker.close()
        bystander.assert_was_served()
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB"
        assert broker.stop(timeout_seconds=20) == 0


def test_who_takes_memory_and_sends_nothing_more_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough has come of a request to reserve memory for all of it, which is then nobody else's."""
    monkeypatch.setattr("ottla.server.listener.TICK_SECONDS", 0.2, raising=False)
    monkeypatch.setattr("ottla.server.listener.LOOK_SECONDS", 0.2, raising=False)
    limits = {"queued.max.request.bytes": 101 * MIB, "socket.request.max.bytes": 101 * MIB}
    with (
        ottla.testing.broker(set=limits) as broker,
        Bystander(broker.bootstrap_servers) as bystander,
    ):
        attackers = [RawConnection(broker.bootstrap_servers) for _ in range(8)]
        for attacker in attackers:
            attacker.send(ANNOUNCED + bytes(100_000))
        with RawConnection(broker.bootstrap_servers) as other:
            body = struct.pack(">hhih", API_VERSIONS, 0, 7, -1) + bytes(2 * MIB)
            other.send(framed(body))
            assert other.receive()[:4] == struct.pack(">i", 7)
        bystander.assert_was_served()
        for attacker in attackers:
            attacker.close()


def test_half_sent_requests_leave_room_for_ordinary_ones() -> None:
    """Hundreds that announce a hundred megabytes each and send some of it, again and again."""
    allow_connections(HALF_SENT)
    with BrokerProcess() as broker, Bystander(broker.bootstrap_servers) as bystander:
        before = memory_bytes(broker.pid)
        attackers = [RawConnection(broker.bootstrap_servers) for _ in range(HALF_SENT)]
        for attacker in attackers:
            attacker.send(ANNOUNCED + bytes(100_000))
        body = framed(struct.pack(">hhih", API_VERSIONS, 0, 7, -1) + bytes(300_000))
        slowest = 0.0
        with RawConnection(broker.bootstrap_servers) as other:
            for _ in range(10):
                began = time.monotonic()
                other.send(body)
                assert other.receive()[:4] == struct.pack(">i", 7)
                slowest = max(slowest, time.monotonic() - began)
        growth = memory_bytes(broker.pid) - before
        # A large one gets its memory too, once those who send nothing more had to give way.
        with RawConnection(broker.bootstrap_servers, timeout_s=60) as large:
            large.send(framed(struct.pack(">hhih", API_VERSIONS, 0, 8, -1) + bytes(20 * MIB)))
            assert large.receive()[:4] == struct.pack(">i", 8)
        bystander.assert_was_served()
        for attacker in attackers:
            attacker.close()
        assert slowest < ANSWER_SECONDS_MAX, f"300 kB waited {slowest:.1f} s"
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB"
        assert broker.stop(timeout_seconds=20) == 0
