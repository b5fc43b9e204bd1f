"""A proxy in front that lets people in, and says in a header who they are.

Anybody can write a header, so it is believed only of the proxy's own address; requests without it, or from
elsewhere, are not answered at all.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

USER = "ottla.user"
"""Where the scope of a request says who asks."""
LOOPBACK = ("127.0.0.1", "::1")


class ProxyUser:
    def __init__(self, app: ASGIApp, header: str, proxies: Collection[str]) -> None:
        self._app = app
        self._header = header
        self._proxies = frozenset(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = (scope.get("client") or ("",))[0]
        if host not in self._proxies:
            text = f"{host} is not the proxy that people come through; --proxy {host} would make it one\n"
            await PlainTextResponse(text, 403)(scope, receive, send)
            return
        users = Headers(scope=scope).getlist(self._header)
        if len(users) > 1:
            # One may be of whoever asks, handed on: nobody could say which.
            text = f"{self._header} is there more than once; the proxy has to replace what it gets\n"
            await PlainTextResponse(text, 400)(scope, receive, send)
            return
        user = users[0].strip() if users else ""
        if not user:
            text = f"the proxy has not said who you are: {self._header} is missing; log in there\n"
            await PlainTextResponse(text, 401)(scope, receive, send)
            return
        await self._app({**scope, USER: user}, receive, send)
