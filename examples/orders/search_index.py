"""A small search index for the demo, with the requests of OpenSearch that the search connector sends.

SQLite's full-text search does the work. With a real OpenSearch only the connector's `connection.url` changes.

POST /_bulk                    index and delete actions, as newline-delimited JSON
GET  /orders/_search?q=text    hits, newest last
GET  /orders/_count
GET  /search                   the page

    python search_index.py --port 9200 --file search.db
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

HITS_MAX = 50
PAGE = """<!doctype html><meta charset="utf-8"><title>Orders</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  input { font: inherit; width: 100%; padding: .5rem; box-sizing: border-box }
  table { width: 100%; border-collapse: collapse; margin-top: 1rem }
  th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884 }
  .VALIDATED { color: #18794e } .FAILED { color: #c62a2f }
</style>
<h1>Orders</h1>
<label>Customer, product, state or reason <input id="q" type="search" autofocus value="VALIDATED"></label>
<p id="count"></p>
<table><thead><tr><th>order<th>customer<th>product<th>pieces<th>state<th>why</tr></thead><tbody></tbody></table>
<script type="module">
const query = document.querySelector("#q"), rows = document.querySelector("tbody");
async function look() {
  const answer = await (await fetch("/orders/_search?q=" + encodeURIComponent(query.value))).json();
  document.querySelector("#count").textContent = `${answer.hits.total.value} orders`;
  rows.replaceChildren(...answer.hits.hits.map(({_source: order}) => {
    const row = document.createElement("tr");
    const reasons = (order.reasons || []).join("; ");
    for (const text of [order.id, order.customer, order.product, order.quantity, order.state, reasons]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (text === order.state) cell.className = text;
      row.append(cell);
    }
    return row;
  }));
}
query.addEventListener("input", look);
setInterval(look, 2000);
look();
</script>
"""


class Index:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, source TEXT)")
        self._database.execute("CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(id UNINDEXED, text)")

    def apply(self, actions: Iterator[tuple[str, str, Any]]) -> list[dict[str, Any]]:
        """All of a request, or nothing of it."""
        results = []
        self._database.execute("BEGIN")
        try:
            for action, number, source in actions:
                self._database.execute("DELETE FROM words WHERE id = ?", (number,))
                self._database.execute("DELETE FROM documents WHERE id = ?", (number,))
                if action != "delete":
                    words = " ".join(_texts(source))
                    self._database.execute(
                        "INSERT INTO documents VALUES (?, ?)", (number, json.dumps(source))
                    )
                    self._database.execute("INSERT INTO words VALUES (?, ?)", (number, words))
                results.append({action: {"_id": number, "status": 200}})
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        return results

    def search(self, text: str) -> tuple[int, list[tuple[str, Any]]]:
        # Each word in quotes: what people type is not an expression of FTS5.
        wanted = " ".join('"' + word.replace('"', '""') + '"' for word in text.split())
        if not wanted:
            return 0, []
        found = self._database.execute(
            "SELECT documents.id, source FROM words JOIN documents USING (id) WHERE words MATCH ? "
            "ORDER BY words.rowid DESC LIMIT ?",
            (wanted, HITS_MAX),
        ).fetchall()
        total = self._database.execute("SELECT count(*) FROM words WHERE words MATCH ?", (wanted,))
        return total.fetchone()[0], [(number, json.loads(source)) for number, source in found]

    def count(self) -> int:
        count: int = self._database.execute("SELECT count(*) FROM documents").fetchone()[0]
        return count


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)


def parse_bulk(body: bytes) -> Iterator[tuple[str, str, Any]]:
    lines = iter(body.splitlines())
    for line in lines:
        ((action, about),) = json.loads(line).items()
        source = None if action == "delete" else json.loads(next(lines))
        yield action, str(about["_id"]), source


def app(path: str) -> Starlette:
    index = Index(path)

    async def about(_: Request) -> JSONResponse:
        return JSONResponse({"name": "demo", "version": {"number": "2.0.0", "distribution": "opensearch"}})

    async def bulk(request: Request) -> JSONResponse:
        return JSONResponse({"errors": False, "items": index.apply(parse_bulk(await request.body()))})

    async def search(request: Request) -> JSONResponse:
        total, found = index.search(request.query_params.get("q", ""))
        hits = [{"_id": number, "_source": source} for number, source in found]
        return JSONResponse({"hits": {"total": {"value": total}, "hits": hits}})

    async def count(_: Request) -> JSONResponse:
        return JSONResponse({"count": index.count()})

    async def made(_: Request) -> JSONResponse:
        return JSONResponse({"acknowledged": True})

    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse(PAGE)

    return Starlette(
        routes=[
            Route("/", about),
            Route("/search", page),
            Route("/_bulk", bulk, methods=["POST", "PUT"]),
            Route("/orders/_bulk", bulk, methods=["POST", "PUT"]),
            Route("/orders/_search", search),
            Route("/orders/_count", count),
            Route("/orders", made, methods=["PUT", "HEAD", "GET"]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=9200)
    parser.add_argument("--file", default=":memory:")
    given = parser.parse_args()
    uvicorn.run(app(given.file), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
