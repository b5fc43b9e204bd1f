"""PLAIN: user and password as they are, so it is for listeners with TLS. Users are in the JAAS line."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.security.sasl.exchange import Granted, LoginRefused

USER = "user_"
_WRONG = "Authentication failed: Invalid username or password"


def users(options: Mapping[str, str]) -> dict[str, str]:
    """Of a JAAS line: `user_alice="her password"`."""
    return {name.removeprefix(USER): password for name, password in options.items() if name.startswith(USER)}


class PlainExchange:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    async def respond(self, message: bytes) -> Granted:
        try:
            tokens = message.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(tokens) != 3:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, username, password = tokens
        if not username:
            raise LoginRefused("Authentication failed: username not specified")
        if not password:
            raise LoginRefused("Authentication failed: password not specified")
        known = self._passwords.get(username)
        # Also for somebody whom nobody knows: how long this takes must not tell.
        expected = password + "?" if known is None else known
        if not hmac.compare_digest(expected.encode(), password.encode()):
            why = "is not known" if known is None else "was refused"
            raise LoginRefused(_WRONG, f"user {username!r} {why}")
        if authorization_id not in ("", username):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Granted(f"User:{username}")
