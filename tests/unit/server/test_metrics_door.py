"""Who may begin a handshake at the door of the metrics."""

from __future__ import annotations

import asyncio
import ssl

from ottla.server.metrics.visitors import HANDSHAKES_OF_ONE_MAX, MetricsDoor


def test_one_network_of_the_sixth_version_does_not_take_all_handshakes() -> None:
    door = MetricsDoor(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.BufferedProtocol)
    begun = [(f"2001:db8::{number + 1:x}", 1) for number in range(HANDSHAKES_OF_ONE_MAX)]
    assert all(door.begin(peer) for peer in begun)
    assert door.begin(("2001:db8::ffff", 1)) is None
    assert door.begin(("2001:db8:0:1::1", 1)) is not None
    assert door.begin(("10.0.0.1", 1)) is not None
    door.end(begun[0])
    assert door.begin(("2001:db8::ffff", 1)) is not None
