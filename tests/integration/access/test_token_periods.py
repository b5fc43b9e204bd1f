"""Delegation tokens that are to last for ever, in numbers as large as requests can hold."""

from __future__ import annotations

import socket
import struct

import pytest
from matrix import HEADER, ask
from principals import Start

from ottla.client.messages import ask_codec
from ottla.wire.api import ApiKey
from ottla.wire.times import MOMENT_MS_MAX, period

DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.parametrize("lifetime_max_ms", [7 * DAY_MS, 2**63 - 1])
def test_tokens_for_ever_last_as_long_as_they_may(start: Start, lifetime_max_ms: int) -> None:
    settings = {
        "delegation_token_secret_key": "secret",
        "delegation_token_max_lifetime_ms": str(lifetime_max_ms),
        "delegation_token_expiry_time_ms": str(lifetime_max_ms),
    }
    with start(**settings) as servers:
        host, port = servers["alice"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as alice:
            made = ask(
                alice,
                ApiKey.CREATE_DELEGATION_TOKEN,
                3,
                {"renewers": [], "max_lifetime": period(2**63 - 1)},
            )
            assert made.error_code == 0
            issued_ms = made.issue_timestamp.timestamp() * 1000
            last_ms = min(issued_ms + lifetime_max_ms, MOMENT_MS_MAX)
            assert made.max_timestamp.timestamp() * 1000 == pytest.approx(last_ms, abs=1)
            for api in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
                codec = ask_codec(api, 2)
                # No codec writes so large a number.
                hmac = bytes([len(made.hmac) + 1]) + made.hmac
                body = hmac + struct.pack(">q", 2**63 - 1) + b"\0"
                frame = HEADER.pack(api, 2, 7, 2) + b"me" + b"\0" + body
                alice.sendall(struct.pack(">i", len(frame)) + frame)
                (size,) = struct.unpack(">i", alice.recv(4, socket.MSG_WAITALL))
                answer = codec.read(alice.recv(size, socket.MSG_WAITALL), 5)
                assert answer.error_code == 0
                assert answer.expiry_timestamp.timestamp() * 1000 == pytest.approx(last_ms, abs=1)
