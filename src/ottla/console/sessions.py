"""Who has logged in, with a user and a password of the cluster's own: brokers decide, and whoever they let in
gets clients with these credentials, until the log-out or until nobody used them for a long time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ottla.client.peer import AuthenticationFailed
from ottla.console.clusters import Cluster, ClusterSettings, new_client
from ottla.console.problems import Refused

COOKIE = "ottla_session"
SESSIONS_MAX = 64
"""Each has a thread and connections of its own for every cluster."""
IDLE_S_MAX = 8 * 3600.0
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_OWN = {"sasl.jaas.config", "sasl.mechanisms", "sasl.oauthbearer.token"}
"""What the console has for itself must let nobody else in."""
OF_ONE_USER_MAX = 8
"""So that one who has a password cannot end everybody else's."""
GUESSES_OF_ONE_MAX = 2
"""At once, from one address: who guesses many passwords must not stand before all others."""
_GUESSES_AT_ONCE = 4
_AFTER_A_GUESS_S = 1.0


class LogInFirst(Refused):
    def __init__(self, cluster: str) -> None:
        super().__init__(f"log in to {cluster} first; programs do so at /api/login", 401)
        self.cluster = cluster


@dataclass(slots=True)
class Session:
    user: str
    used_s: float
    clusters: dict[str, Cluster] = field(default_factory=dict)

    def close(self) -> None:
        for cluster in self.clusters.values():
            cluster.close()


class Sessions:
    def __init__(self) -> None:
        self._by_key: dict[str, Session] = {}
        self._guesses = asyncio.Semaphore(_GUESSES_AT_ONCE)
        self._guessing: Counter[str] = Counter()

    def find(self, key: str | None) -> Session | None:
        self._end_idle_ones()
        session = self._by_key.get(key) if key else None
        if session is not None:
            session.used_s = time.monotonic()
        return session

    async def log_in(
        self,
        key: str | None,
        settings: ClusterSettings,
        user: str,
        password: str,
        mechanism: str,
        address: str,
    ) -> str:
        """The key of the session, which is a new one: nobody can have planted it. Logged in to several
        clusters, under one name, is one session."""
        if mechanism not in MECHANISMS:
            raise Refused(f"mechanism is {mechanism!r}; people log in by {', '.join(MECHANISMS)}")
        named = replace(settings, properties=as_user(settings.properties, user, password, mechanism))
        if self._guessing[address] >= GUESSES_OF_ONE_MAX:
            raise Refused(f"too many log-ins at once from {address}; try again in a second", 429)
        self._guessing[address] += 1
        try:
            await self._prove(named, user, mechanism)
        finally:
            self._guessing[address] -= 1
            if not self._guessing[address]:
                del self._guessing[address]
        session = self._by_key.pop(key, None) if key else None
        if session is not None and session.user != user:
            session.close()
            session = None
        if session is None:
            self._make_room(user)
            session = Session(user, time.monotonic())
        if (before := session.clusters.pop(settings.name, None)) is not None:
            before.close()
        session.clusters[settings.name] = Cluster(named)
        new_key = secrets.token_urlsafe(32)
        self._by_key[new_key] = session
        return new_key

    async def _prove(self, named: ClusterSettings, user: str, mechanism: str) -> None:
        async with self._guesses:
            try:
                async with new_client(named) as client:
                    await client.cluster()
            except AuthenticationFailed:
                # Who guesses shall not guess often.
                await asyncio.sleep(_AFTER_A_GUESS_S)
                raise Refused(
                    f"{named.name} does not let {user} in with this password by {mechanism}", 401
                ) from None

    def log_out(self, key: str | None) -> None:
        if key and (session := self._by_key.pop(key, None)) is not None:
            session.close()

    def close(self) -> None:
        for key in list(self._by_key):
            self.log_out(key)

    def _end_idle_ones(self) -> None:
        long_ago_s = time.monotonic() - IDLE_S_MAX
        for key in [key for key, session in self._by_key.items() if session.used_s < long_ago_s]:
            self.log_out(key)

    def _make_room(self, user: str) -> None:
        """Whoever was away the longest has to log in again."""
        mine = sorted(
            (key for key, session in self._by_key.items() if session.user == user),
            key=lambda key: self._by_key[key].used_s,
        )
        for key in mine[: len(mine) - OF_ONE_USER_MAX + 1]:
            self.log_out(key)
        while len(self._by_key) >= SESSIONS_MAX:
            self.log_out(min(self._by_key, key=lambda key: self._by_key[key].used_s))


def as_user(properties: Mapping[str, str], user: str, password: str, mechanism: str) -> dict[str, str]:
    """How to reach a cluster, with the credentials of somebody."""
    kept = {name: value for name, value in properties.items() if name not in _OWN}
    return {**kept, "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
