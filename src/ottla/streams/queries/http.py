"""Tables over HTTP, as JSON: one entry by its key, or a page of a range.

GET /tables                                   the names
GET /tables/counts                            the first entries
GET /tables/counts?from=a&to=f&limit=50       a range of keys, both ends included
GET /tables/counts?prefix=ka                  keys that begin with it
GET /tables/counts/kafka                      one key
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ottla.streams.errors import SerdeError, StoreError
from ottla.streams.records import Windowed
from ottla.streams.serdes import Serde

if TYPE_CHECKING:
    from ottla.streams.queries.view import Entry, TableView

_LIMIT = 100
_LIMIT_MAX = 10_000


def tables_app(views: Mapping[str, TableView], others: Sequence[Route] = ()) -> Starlette:
    """An ASGI application; `ottla run --http` serves it, with other things besides tables."""

    def view_of(request: Request) -> TableView:
        name = request.path_params["name"]
        if name not in views:
            known = ", ".join(sorted(views)) or "none"
            raise HTTPException(404, f"there is no table {name}; this application has: {known}")
        return views[name]

    async def names(_: Request) -> JSONResponse:
        return JSONResponse({"tables": sorted(views)})

    async def entry(request: Request) -> JSONResponse:
        view = view_of(request)
        key = parse_key(view.key_serde, request.path_params["key"])
        found = await run_in_threadpool(view.entry, key)
        if found is None:
            raise HTTPException(404, f"{request.path_params['name']} has no key {request.path_params['key']}")
        return JSONResponse(shown(found))

    async def entries(request: Request) -> JSONResponse:
        view, asked = view_of(request), request.query_params
        unknown = sorted(set(asked) - {"from", "to", "prefix", "limit"})
        if unknown:
            raise HTTPException(400, f"unknown parameter {unknown[0]}; there are from, to, prefix and limit")
        limit = _parse_limit(asked.get("limit"))
        if "prefix" in asked:
            found: Iterable[Entry] = await run_in_threadpool(view.prefix, asked["prefix"])
        else:
            low, high = (
                parse_key(view.key_serde, asked[name]) if name in asked else None for name in ("from", "to")
            )
            found = await run_in_threadpool(view.range, low, high)
        return JSONResponse({"entries": [shown(each) for each in islice(found, limit)]})

    async def refused(_: Request, error: Exception) -> JSONResponse:
        status = error.status_code if isinstance(error, HTTPException) else 503
        text = error.detail if isinstance(error, HTTPException) else str(error)
        return JSONResponse({"error": text}, status_code=status)

    return Starlette(
        routes=[
            Route("/tables", names),
            Route("/tables/{name}", entries),
            Route("/tables/{name}/{key:path}", entry),
            *others,
        ],
        exception_handlers={HTTPException: refused, StoreError: refused},
    )


def parse_key(serde: Serde, text: str) -> Any:
    """A key as written in an address: text as it is, everything else as JSON."""
    if serde.spark_type == "string" and serde.name == "string":
        return text
    try:
        if serde.name.startswith("JSON"):
            return serde.deserialize(text.encode())
        if serde.spark_type == "binary":
            return text.encode()
        key = json.loads(text)
        serde.serialize(key)
        return key
    except (SerdeError, ValueError) as error:
        raise HTTPException(400, f"{text!r} is not a key of this table ({serde.name}): {error}") from None


def _parse_limit(text: str | None) -> int:
    if text is None:
        return _LIMIT
    if not text.isdecimal() or len(text) > len(f"{_LIMIT_MAX}") or not 1 <= int(text) <= _LIMIT_MAX:
        raise HTTPException(400, f"limit is {text!r}; give a number from 1 to {_LIMIT_MAX}")
    return int(text)


def shown(entry: Entry) -> dict[str, Any]:
    return {"key": _plain(entry.key), "value": _plain(entry.value), "timestamp": entry.timestamp_ms}


def _plain(value: Any) -> Any:
    match value:
        case Windowed(key, window):
            return {"key": _plain(key), "start": window.start_ms, "end": window.end_ms}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value)
