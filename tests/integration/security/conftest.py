"""Certificates, and one broker whose listeners are closed in all ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from closed_broker import SCRAM_PASSWORD, Closed, Files, closed_settings
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from token_issuer import Issuer

from ottla.cli.files.certificates import Authority
from ottla.testing.in_process import InProcessBroker


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    home = tmp_path_factory.mktemp("certificates")
    authority, other = Authority(), Authority("somebody else")

    def write(name: str, content: bytes) -> str:
        path = home / f"{name}.pem"
        path.write_bytes(content)
        return str(path)

    return Files(
        authority=write("ca", authority.certificate),
        server=write("server", authority.issue("broker", ["localhost", "127.0.0.1"]).identity),
        client=write("client", authority.issue("carol").identity),
        expired=write("expired", authority.issue("carol", days=-1).identity),
        unknown=write("unknown", other.issue("carol").identity),
        other_authority=write("other-ca", other.certificate),
        elsewhere=write("elsewhere", authority.issue("broker", ["broker.example"]).identity),
    )


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="session")
def closed(files: Files, issuer: Issuer) -> Iterator[Closed]:
    with InProcessBroker(closed_settings(files, issuer)) as broker:
        yield Closed(broker, broker.ports)


@pytest.fixture(scope="session")
def with_users(closed: Closed) -> Closed:
    """Alice has the same password for both kinds of SCRAM."""
    admin = AdminClient({"bootstrap.servers": closed["PLAINTEXT"]})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode()
        )
        for done in admin.alter_user_scram_credentials([credential]).values():
            done.result(10)
    return closed
