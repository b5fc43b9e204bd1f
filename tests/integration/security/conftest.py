"""Certificates, and one broker whose listeners are closed in all ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from closed_broker import Closed, Files, closed_settings

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
def closed(files: Files) -> Iterator[Closed]:
    with InProcessBroker(closed_settings(files)) as broker:
        yield Closed(broker, broker.ports)
