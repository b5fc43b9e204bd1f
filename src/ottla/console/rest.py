"""Servers beside a cluster that answer JSON: Connect's workers, Streams applications. They are asked in
threads: seldom, and answers take as long as they take."""

from __future__ import annotations

import asyncio
import base64
import json
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from ottla.console.problems import Refused

TIMEOUT_S = 20.0
ANSWER_BYTES_MAX = 32 << 20
_OWN_MEANING = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.FORBIDDEN}


def check_address(address: str) -> None:
    """ValueError for what cannot be one."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{address!r} is not an address such as http://localhost:8083")


class Rest:
    """`http://user:password@host:8083` has the user and the password that may be asked for."""

    def __init__(self, what: str, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self._what = what
        self._timeout_s = timeout_s
        parts = urlsplit(address.rstrip("/"))
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        # They are where the address says: neither a proxy of the environment nor a redirection is followed.
        self._opener = build_opener(ProxyHandler({}), _NoRedirections)

    async def ask(self, method: str, *segments: str, body: Any = None, query: Any = ()) -> Any:
        """The answer as data, None where there is none. Refused with the server's own words."""
        return await asyncio.to_thread(self.ask_now, method, *segments, body=body, query=query)

    def ask_now(self, method: str, *segments: str, body: Any = None, query: Any = ()) -> Any:
        """For those who are in a thread already."""
        path = "/".join(quote(each, safe="") for each in segments)
        address = f"{self.address}/{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = Request(address, data, self._headers, method=method)  # noqa: S310 - checked with the settings
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                data = answer.read(ANSWER_BYTES_MAX)
        except HTTPError as error:
            status = error.code if error.code in _OWN_MEANING else HTTPStatus.BAD_GATEWAY
            raise Refused(_words(self._what, error), status) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise Refused(f"{self._what} at {self.address} does not answer: {reason}", 503) from None
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise Refused(
                f"what answers at {self.address} is not {self._what}", HTTPStatus.BAD_GATEWAY
            ) from None


class _NoRedirections(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _words(what: str, error: HTTPError) -> str:
    try:
        told = json.loads(error.read(ANSWER_BYTES_MAX))
        return str(told["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{what} answered {error.code} {error.reason}"
