"""With whose credentials somebody who logs in is let in."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console.clusters import ClusterSettings
from ottla.console.problems import Refused
from ottla.console.sessions import Sessions, as_user


def test_what_the_console_has_for_itself_is_nobodys() -> None:
    own = {
        "security.protocol": "SASL_SSL",
        "sasl.oauthbearer.token": "of the console",
        "sasl.jaas.config": "of the console",
        "sasl.username": "console",
        "sasl.password": "of the console",
    }
    named = as_user(own, "alice", "hers", "PLAIN")
    assert "of the console" not in named.values() and "console" not in named.values()


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "oauthbearer", "GSSAPI", "", "plain"])
def test_people_log_in_by_a_password(mechanism: str) -> None:
    settings = ClusterSettings("local", "127.0.0.1:1", {"security.protocol": "SASL_PLAINTEXT"}, login=True)

    async def log_in() -> None:
        await Sessions().log_in(None, settings, "alice", "x", mechanism, "10.0.0.1")

    with pytest.raises(Refused, match="SCRAM-SHA-512"):
        asyncio.run(log_in())
