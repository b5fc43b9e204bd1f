"""Running applications over HTTP, beside their tables.

GET /topology                 all applications of the process, with live numbers
GET /topology/word-count      one of them
GET /metrics                  for Prometheus
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.streams.application.metrics_page import metrics_page
from ottla.streams.application.monitor import ApplicationSnapshot


def application_routes(snapshots: Callable[[], Sequence[ApplicationSnapshot]]) -> list[Route]:
    """`snapshots` may take its time: it asks Spark."""

    async def all_of_them(_: Request) -> JSONResponse:
        found = await run_in_threadpool(snapshots)
        return JSONResponse({"applications": [each.to_json() for each in found]})

    async def one(request: Request) -> JSONResponse:
        wanted, found = request.path_params["application"], await run_in_threadpool(snapshots)
        for each in found:
            if each.application_id == wanted:
                return JSONResponse(each.to_json())
        known = ", ".join(each.application_id for each in found)
        raise HTTPException(404, f"{wanted} does not run here; there are: {known}")

    async def metrics(request: Request) -> Response:
        found = await run_in_threadpool(snapshots)
        content_type, text = metrics_page(found, request.headers.get("accept", ""))
        return Response(text, media_type=content_type)

    return [
        Route("/topology", all_of_them),
        Route("/topology/{application}", one),
        Route("/metrics", metrics),
    ]
