"""The board: flights, passengers who need another one, what becomes of them. It can cancel and answer.

GET  /              the page
GET  /data          what it shows
POST /flights/OT101 {"is_cancelled": true}, or {"delay_minutes": 90}
POST /answers       {"case": …, "route": …, "step": …, "accepts": true}

    python board.py --bootstrap-server localhost:9092 --port 8097
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route
from travel import topics
from travel.events import MINUTE_MS, Answer, Case, Flight, Notification
from travel.topic_writer import TopicWriter

from ottla.streams import TableView

PAGE = Path(__file__).with_name("board.html")
TABLES = {topics.FLIGHTS: Flight, topics.CASES: Case, topics.NOTIFICATIONS: Notification}
CASES_MAX, NOTIFICATIONS_MAX = 200, 10


def parse_answer(body: Any) -> Answer:
    fields = {"case": str, "route": str, "step": int, "accepts": bool}
    for name, kind in fields.items():
        if not isinstance(body, dict) or type(body.get(name)) is not kind:
            raise HTTPException(400, f"an answer has {', '.join(fields)}; {name} is a {kind.__name__}")
    return Answer(**{name: body[name] for name in fields})


def changed(flight: Flight, body: Any) -> Flight:
    match body:
        case {"is_cancelled": bool(is_cancelled)}:
            return replace(flight, is_cancelled=is_cancelled)
        case {"delay_minutes": int(minutes)}:
            return flight.delayed(minutes * MINUTE_MS)
    raise HTTPException(400, "give is_cancelled, true or false, or delay_minutes, a number")


async def given(request: Request) -> Any:
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise HTTPException(400, f"not JSON: {error}") from None


def app(bootstrap_servers: str) -> Starlette:
    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        service.state.writer = TopicWriter(bootstrap_servers)
        with ExitStack() as stack:
            for topic, kind in TABLES.items():
                view = TableView(bootstrap_servers, topic, key=str, value=kind)
                setattr(service.state, topic, stack.enter_context(view))
            yield

    async def page(_: Request) -> FileResponse:
        return FileResponse(PAGE)

    async def data(request: Request) -> JSONResponse:
        state = request.app.state
        cases = sorted(state.cases.all(), key=lambda entry: entry.timestamp_ms, reverse=True)
        told = sorted(state.notifications.all(), key=lambda entry: entry.timestamp_ms, reverse=True)
        flights = sorted((entry.value for entry in state.flights.all()), key=lambda flight: flight.departs_ms)
        return JSONResponse(
            {
                "flights": [asdict(flight) for flight in flights],
                "counts": Counter(entry.value.state for entry in cases),
                "cases": [asdict(entry.value) | {"id": entry.key} for entry in cases[:CASES_MAX]],
                "notifications": [
                    asdict(entry.value) | {"at_ms": entry.timestamp_ms} for entry in told[:NOTIFICATIONS_MAX]
                ],
            }
        )

    async def change(request: Request) -> JSONResponse:
        number = request.path_params["number"]
        flight = request.app.state.flights.get(number)
        if flight is None:
            raise HTTPException(404, f"there is no flight {number}")
        await asyncio.to_thread(request.app.state.writer.write, changed(flight, await given(request)))
        return JSONResponse({}, status_code=202)

    async def answer(request: Request) -> JSONResponse:
        await asyncio.to_thread(request.app.state.writer.write, parse_answer(await given(request)))
        return JSONResponse({}, status_code=202)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/data", data),
            Route("/flights/{number}", change, methods=["POST"]),
            Route("/answers", answer, methods=["POST"]),
        ],
        lifespan=life,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=8097)
    options = parser.parse_args()
    uvicorn.run(app(options.bootstrap_server), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
