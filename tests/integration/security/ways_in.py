"""All ways into a closed broker, and those that must not lead in: what every client is tried with."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from closed_broker import PLAIN_PASSWORD, SCRAM_PASSWORD, Closed, Files
from token_issuer import Issuer

PASSWORDS = {"PLAIN": PLAIN_PASSWORD, "SCRAM-SHA-256": SCRAM_PASSWORD, "SCRAM-SHA-512": SCRAM_PASSWORD}


@dataclass(frozen=True)
class Way:
    port: int
    protocol: str
    authority: str
    """What the client trusts."""
    identity: str = ""
    """What it shows: a file with certificate and key."""
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token: str = ""

    @property
    def server(self) -> str:
        return f"localhost:{self.port}"

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def ways_in(closed: Closed, files: Files, issuer: Issuer) -> dict[str, Way]:
    tls = Way(closed.ports["TLS"], "SSL", files.authority)
    login = Way(closed.ports["BOTH"], "SASL_SSL", files.authority, username="alice")
    ways = {
        "SSL": tls,
        "mTLS": replace(tls, port=closed.ports["MUTUAL"], identity=files.client),
        "OAUTHBEARER": replace(login, mechanism="OAUTHBEARER", token=issuer.token()),
        **{each: replace(login, mechanism=each, password=PASSWORDS[each]) for each in PASSWORDS},
    }
    open_wire = {"port": closed.ports["SASL"], "protocol": "SASL_PLAINTEXT"}
    for mechanism in ("SCRAM-SHA-512", "OAUTHBEARER"):
        ways[f"{mechanism} without TLS"] = replace(ways[mechanism], **open_wire)  # type: ignore[arg-type]
    return ways


def ways_out(closed: Closed, files: Files, issuer: Issuer) -> dict[str, Way]:
    """Each is a way in with one thing wrong."""
    right = ways_in(closed, files, issuer)
    tls, mutual, bearer = right["SSL"], right["mTLS"], right["OAUTHBEARER"]
    return {
        "an authority that it does not trust": replace(tls, authority=files.other_authority),
        "a broker of another host name": replace(tls, port=closed.ports["ELSEWHERE"]),
        "no certificate": replace(mutual, identity=""),
        "an expired certificate": replace(mutual, identity=files.expired),
        "an unknown certificate": replace(mutual, identity=files.unknown),
        **{f"a wrong password ({each})": replace(right[each], password="a guess") for each in PASSWORDS},
        "an unknown user": replace(right["SCRAM-SHA-512"], username="eve"),
        "a token of another audience": replace(bearer, token=issuer.token(aud=["somebody else"])),
        "an expired token": replace(bearer, token=issuer.token(exp=int(time.time()) - 60)),
        "a token that somebody else signed": replace(bearer, token=issuer.forged_token()),
    }


def tried(ways: dict[str, Way], attempt: Callable[[Way], str]) -> dict[str, str]:
    """All at once, since most of it is waiting. `attempt` says what kept it out, or nothing."""
    with ThreadPoolExecutor(len(ways)) as threads:
        return dict(zip(ways, threads.map(attempt, ways.values()), strict=True))
