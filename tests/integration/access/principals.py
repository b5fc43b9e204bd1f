"""A broker with an authorizer whose listeners are principals: who connects to ALICE is User:alice.

Nothing of it is in the product: clients are taken for whom they are said to be, without authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

PRINCIPALS = ("ADMIN", "ALICE", "BOB")
Servers = dict[str, str]
"""Addresses by the names of principals, in small letters."""
Start = Callable[..., AbstractContextManager[Servers]]


def settings(ports: Mapping[str, int], **more: str) -> dict[str, str]:
    names = list(ports)
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": names[0],
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
