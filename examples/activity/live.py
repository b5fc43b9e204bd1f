"""A page of what is going on: how far visitors get, pages that are popular now, the last visits.

python live.py --bootstrap-server localhost:9092 --port 8098
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route

from ottla.streams import TableView

STEPS = ("viewed", "searched", "clicked")
TABLES = {"funnel": str, "top-pages": dict, "visits": dict}
VISITS_SHOWN = 8
PAGE = Path(__file__).with_name("live.html")


def funnel_of(furthest: Iterable[str]) -> dict[str, int]:
    """Whoever clicked has searched and viewed before."""
    counts = Counter(furthest)
    return {step: sum(counts[later] for later in STEPS[number:]) for number, step in enumerate(STEPS)}


def popular(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the last minute that anybody viewed anything in."""
    rows = list(rows)
    last_ms = max((row["from_ms"] for row in rows), default=0)
    return sorted((row for row in rows if row["from_ms"] == last_ms), key=lambda row: -row["views"])


def app(bootstrap_servers: str) -> Starlette:
    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        with ExitStack() as stack:
            service.state.tables = {
                name: stack.enter_context(TableView(bootstrap_servers, name, key=str, value=kind))
                for name, kind in TABLES.items()
            }
            yield

    async def page(_: Request) -> FileResponse:
        return FileResponse(PAGE)

    async def data(request: Request) -> JSONResponse:
        tables = {name: list(table.all()) for name, table in request.app.state.tables.items()}
        visits = sorted(tables["visits"], key=lambda entry: -entry.timestamp_ms)
        return JSONResponse(
            {
                "funnel": funnel_of(entry.value for entry in tables["funnel"]),
                "pages": popular(entry.value for entry in tables["top-pages"]),
                "visits": [entry.value for entry in visits[:VISITS_SHOWN]],
                "visit_count": len(visits),
            }
        )

    return Starlette(routes=[Route("/", page), Route("/data", data)], lifespan=life)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=8098)
    given = parser.parse_args()
    uvicorn.run(app(given.bootstrap_server), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
