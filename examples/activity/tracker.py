"""Takes what visitors of a site do, and a page to try it on. One topic per kind of event, keyed by visitor.

POST /events  {"kind": "view", "visitor": …, "page": …}      also search (text) and click (page)

    python tracker.py --bootstrap-server localhost:9092 --port 8096
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from confluent_kafka import Producer
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

KINDS = {"view": ("page-views", "page"), "search": ("searches", "text"), "click": ("clicks", "page")}
"""The topic, and what else an event has."""
PAGE = """<!doctype html><meta charset="utf-8"><title>A site</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto } a { margin-right: 1rem }
</style>
<h1>A site</h1>
<p><a href="#lamps">Lamps</a><a href="#teapots">Teapots</a><a href="#desks">Desks</a></p>
<p><input type="search" placeholder="search"> <button>Buy</button></p><ol></ol>
<script type="module">
const visitor = localStorage.visitor ??= crypto.randomUUID();
async function tell(event) {
  const answer = await fetch("/events", { method: "POST", body: JSON.stringify({ visitor, ...event }) });
  const line = document.createElement("li");
  line.textContent = `${answer.status} ${JSON.stringify(event)}`;
  document.querySelector("ol").prepend(line);
}
const page = () => location.hash.slice(1) || "home";
addEventListener("hashchange", () => tell({ kind: "view", page: page() }));
const input = document.querySelector("input");
input.addEventListener("change", () => tell({ kind: "search", text: input.value }));
document.querySelector("button").addEventListener("click", () => tell({ kind: "click", page: page() }));
tell({ kind: "view", page: page() });
</script>
"""


def parse(event: Any) -> tuple[str, str, dict[str, Any]]:
    """Topic, visitor and what is stored."""
    if not isinstance(event, dict) or event.get("kind") not in KINDS:
        raise HTTPException(400, f"give an event of one of the kinds {', '.join(KINDS)}")
    topic, needed = KINDS[event["kind"]]
    for name in ("visitor", needed):
        if not isinstance(event.get(name), str) or not event[name]:
            raise HTTPException(400, f"a {event['kind']} needs {name}, a text")
    visitor = event["visitor"]
    return topic, visitor, {"visitor": visitor, needed: event[needed], "at": int(time.time() * 1000)}


def app(bootstrap_servers: str) -> Starlette:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 20}
    )
    is_closing = threading.Event()

    def poll() -> None:
        while not is_closing.is_set():
            producer.poll(0.1)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        thread = threading.Thread(target=poll)
        thread.start()
        yield
        is_closing.set()
        thread.join()
        producer.flush(10)

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    async def take(request: Request) -> JSONResponse:
        try:
            topic, visitor, event = parse(await request.json())
        except json.JSONDecodeError as error:
            raise HTTPException(400, f"not JSON: {error}") from None
        try:
            producer.produce(topic, json.dumps(event), visitor)
        except BufferError:
            # Visitors do not wait for statistics.
            raise HTTPException(503, "too many events wait for the brokers") from None
        return JSONResponse({}, status_code=202)

    return Starlette(routes=[Route("/", page), Route("/events", take, methods=["POST"])], lifespan=life)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=8096)
    given = parser.parse_args()
    uvicorn.run(app(given.bootstrap_server), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
