"""A newer client says more than the broker knows, in tagged fields (KIP-482): they are skipped."""

from __future__ import annotations

import struct

import pytest
from raw_client import RawConnection, framed

import ottla.testing

METADATA, FIND_COORDINATOR, API_VERSIONS = 3, 10, 18
UNKNOWN = b"\x01\x63\x03xyz"
REQUESTS = {
    "ApiVersions": (API_VERSIONS, 3, b"\x02a\x02b" + UNKNOWN),
    "Metadata": (METADATA, 12, b"\x02" + bytes(16) + b"\x06never" + UNKNOWN + b"\0\0" + UNKNOWN),
    "FindCoordinator": (FIND_COORDINATOR, 4, b"\0\x02\x02g" + UNKNOWN),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_unknown_tagged_fields_do_not_matter(name: str) -> None:
    key, version, body = REQUESTS[name]
    head = struct.pack(">hhih", key, version, 7, -1) + UNKNOWN
    with (
        ottla.testing.broker() as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        connection.send(framed(head + body) * 2)
        assert connection.receive()[:4] == struct.pack(">i", 7)
        assert connection.receive()[:4] == struct.pack(">i", 7)
