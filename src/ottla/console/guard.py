"""Who may talk to the console, and what its pages may do.

A console on somebody's own machine has no log-in: what reaches it may do everything. So a page of another
site must not reach it. It cannot send what changes anything (a token that only our own pages have, and a
body of a kind that browsers ask about first), nor read from us under a name of its own (the Host header).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.problems import Refused

COOKIE = "ottla_console"
TOKEN_HEADER = "x-csrf-token"  # noqa: S105 - a name
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types ottla"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Tokens:
    """A browser has a random cookie; the token of its pages is made from that, by a key of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, browser: str) -> str:
        return hmac.new(self._key, browser.encode(), hashlib.sha256).hexdigest()

    def check(self, request: HTTPConnection) -> None:
        browser, given = request.cookies.get(COOKIE, ""), request.headers.get(TOKEN_HEADER, "")
        if not browser or not hmac.compare_digest(self.of(browser).encode(), given.encode()):
            raise Refused(
                "the request has no valid token against forgery; reload the page, or as a program take one "
                "from /api/token",
                403,
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused("changes are asked for in JSON: content-type must be application/json", 415)
        if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            raise Refused("the request comes from a page of another site", 403)


class Guard:
    """The outermost layer: names, headers, the cookie, and paths as they were written."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in (*OWN_NAMES, *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = _without_port(Headers(scope=scope).get("host", ""))
        if host not in self._names:
            text = f"this console is not called {host}; start it with --allowed-host {host} if it should be\n"
            await PlainTextResponse(text, 421)(scope, receive, send)
            return
        # A segment may contain an escaped slash: routes match what was written, and each part is read once.
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        browser = _cookie(scope)
        new_browser = secrets.token_urlsafe(24) if browser is None else None
        scope = {
            **scope,
            "path": raw_path.partition(b"?")[0].decode("latin-1"),
            "ottla.browser": browser or new_browser,
        }

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
                if new_browser is not None:
                    secure = "; Secure" if scope.get("scheme") == "https" else ""
                    headers.append(
                        "set-cookie", f"{COOKIE}={new_browser}; Path=/; HttpOnly; SameSite=Strict{secure}"
                    )
            await send(message)

        await self._app(scope, receive, send_guarded)


def path_values(scope: Scope) -> dict[str, str]:
    """The parts of the path that a route names."""
    return {name: unquote(value) for name, value in scope["path_params"].items()}


def _cookie(scope: Scope) -> str | None:
    """Read as the token's check reads it. Others of the same machine may have cookies of whatever form."""
    return HTTPConnection(scope).cookies.get(COOKIE) or None


def _without_port(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]
