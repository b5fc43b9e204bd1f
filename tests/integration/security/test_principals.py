"""As whom clients are taken. Whoever asks for a delegation token is told, since it becomes the owner."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from closed_broker import LOGIN, Closed, Files

from ottla.client.peer import Peer
from ottla.client.security import security_from_properties
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

LOCAL = "127.0.0.1"
ASK = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": -1}


def asked(port: int, properties: dict[str, str], *questions: tuple[ApiKey, dict[str, Any]]) -> list[Any]:
    async def ask() -> list[Any]:
        peer = await Peer.connect(
            AsyncioNetwork(),
            LOCAL,
            port,
            client_id="test",
            software_version="1",
            security=security_from_properties(properties),
        )
        answers = [await peer.ask(*question) for question in questions]
        peer.close()
        return answers

    return asyncio.run(ask())


def principal(port: int, properties: dict[str, str]) -> str:
    [answer] = asked(port, properties, (ApiKey.CREATE_DELEGATION_TOKEN, ASK))
    if answer.error_code is ErrorCode.delegation_token_request_not_allowed:
        return "nobody"
    assert answer.error_code is ErrorCode.none
    return f"{answer.principal_type}:{answer.principal_name}"


def login(mechanism: str, name: str, password: str, more: str = "") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{LOGIN}.x required username="{name}" password="{password}" {more};',
    }


def test_each_listener_says_who_it_is(closed: Closed, files: Files) -> None:
    trust = {"security.protocol": "SSL", "ssl.truststore.location": files.authority}
    certificate = {"ssl.keystore.location": files.client}
    assert principal(closed.ports["PLAINTEXT"], {}) == "nobody"
    assert principal(closed.ports["TLS"], trust) == "nobody"
    # Nobody asked for it.
    assert principal(closed.ports["TLS"], trust | certificate) == "nobody"
    assert principal(closed.ports["MUTUAL"], trust | certificate) == "User:CAROL"
    alice = login("PLAIN", "alice", "alice secret")
    assert principal(closed.ports["SASL"], alice) == "User:alice"
    # The login counts, not the certificate.
    both = alice | trust | certificate | {"security.protocol": "SASL_SSL"}
    assert principal(closed.ports["BOTH"], both) == "User:alice"


def test_a_token_is_for_a_while_and_for_no_more_tokens(closed: Closed) -> None:
    port = closed.ports["SASL"]
    alice = login("PLAIN", "alice", "alice secret")
    [made] = asked(port, alice, (ApiKey.CREATE_DELEGATION_TOKEN, {**ASK, "max_lifetime": 3_600_000}))

    hmac = base64.b64encode(made.hmac).decode()
    token = login("SCRAM-SHA-256", made.token_id, hmac, 'tokenauth="true"')
    cluster, tokens = asked(
        port,
        token,
        (ApiKey.METADATA, {"topics": []}),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}),
    )
    assert cluster.brokers
    assert tokens.error_code is ErrorCode.delegation_token_request_not_allowed
    with pytest.raises(Exception, match="invalid credentials"):
        asked(port, login("SCRAM-SHA-256", made.token_id, hmac), (ApiKey.METADATA, {"topics": []}))
    refused, expired = asked(
        port,
        login("PLAIN", "bob", "bob"),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": made.hmac, "expiry_time_period": -1}),
        (ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": b"unknown", "renew_period": -1}),
    )
    assert refused.error_code is ErrorCode.delegation_token_owner_mismatch
    assert expired.error_code is ErrorCode.delegation_token_not_found
    asked(port, alice, (ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": made.hmac, "expiry_time_period": -1}))
    with pytest.raises(Exception, match="invalid credentials"):
        asked(port, token, (ApiKey.METADATA, {"topics": []}))


def test_a_cluster_begins_with_the_credentials_it_was_formatted_with(tmp_path: Path) -> None:
    data = tmp_path / "data"
    properties = tmp_path / "server.properties"
    settings = {"listeners": f"SASL_PLAINTEXT://{LOCAL}:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    lines = [*(f"{name}={value}" for name, value in settings.items()), f"log.dirs={data}"]
    properties.write_text("\n".join(lines))
    command = [sys.executable, "-m", "ottla.cli.main", "storage", "format", "--standalone"]
    command += ["-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(properties)]
    command += ["--add-scram", "SCRAM-SHA-512=[name=admin,password=from the start]"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    admin = login("SCRAM-SHA-512", "admin", "from the start")
    for _ in range(2):
        with InProcessBroker(settings, data_dir=str(data)) as broker:
            [cluster] = asked(broker.port, admin, (ApiKey.METADATA, {"topics": []}))
            assert cluster.brokers
