"""Kafka Connect's REST API. It is asked in threads: seldom, and answers take as long as workers take."""

from __future__ import annotations

import asyncio
import base64
import json
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from ottla.console.problems import Refused

TIMEOUT_S = 20.0
ANSWER_BYTES_MAX = 32 << 20
_OWN_MEANING = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.FORBIDDEN}


def check_address(address: str) -> None:
    """ValueError for what cannot be the address of a worker."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{address!r} is not the address of a Connect worker, such as http://localhost:8083")


class ConnectRest:
    """`http://user:password@host:8083` has the user and the password that a worker may ask for."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address.rstrip("/"))
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        # Workers are where the settings say, whatever a proxy of the environment is for.
        self._opener = build_opener(ProxyHandler({}))

    async def ask(self, method: str, *segments: str, body: Any = None, query: Any = ()) -> Any:
        """The answer as data, None where there is none. Refused with the worker's own words."""
        path = "/".join(quote(each, safe="") for each in segments)
        address = f"{self.address}/{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = Request(address, data, self._headers, method=method)  # noqa: S310 - checked with the settings
        return await asyncio.to_thread(self._send, request)

    def _send(self, request: Request) -> Any:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                data = answer.read(ANSWER_BYTES_MAX)
        except HTTPError as error:
            status = error.code if error.code in _OWN_MEANING else HTTPStatus.BAD_GATEWAY
            raise Refused(_words(error), status) from None
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise Refused(f"Connect at {self.address} does not answer: {reason}", 503) from None
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise Refused(f"what answers at {self.address} is not Connect", HTTPStatus.BAD_GATEWAY) from None


def _words(error: HTTPError) -> str:
    try:
        told = json.loads(error.read(ANSWER_BYTES_MAX))
        return str(told["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"Connect answered {error.code} {error.reason}"
