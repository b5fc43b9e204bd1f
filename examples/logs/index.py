"""A search index of all lines, in SQLite, and a page to search it on.

What is indexed and how far the topics were read are written in one transaction of the database: each line is
found once, whatever is killed.

    python index.py --bootstrap-server localhost:9092 --file logs.db --port 8097
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route

from ottla.streams import TableView

ENTRIES, RATES, DEAD = "log-entries", "log-rates", "log-dead"
HITS_MAX = 100
BATCH = 5_000
MINUTES_SHOWN = 30
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, at_ms INT, host, service, level, message);
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5 (host, service, level, message, content='entries', content_rowid='id');
CREATE TABLE IF NOT EXISTS positions (topic, partition, next INT, PRIMARY KEY (topic, partition));
"""


class Index:
    """One connection, in one thread. A second one may read meanwhile."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(SCHEMA)

    def close(self) -> None:
        self._database.close()

    def positions(self) -> dict[tuple[str, int], int]:
        rows = self._database.execute("SELECT topic, partition, next FROM positions")
        return {(topic, partition): following for topic, partition, following in rows}

    def add(self, rows: Iterable[tuple[int, str, str, str, str]], read: dict[tuple[str, int], int]) -> None:
        """Time, host, service, level and message of each; and what to read next, by topic and partition."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            last = self._database.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()[0]
            numbered = [(number, *row) for number, row in enumerate(rows, last + 1)]
            self._database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", numbered)
            self._database.execute(
                "INSERT INTO words (rowid, host, service, level, message) "
                "SELECT id, host, service, level, message FROM entries WHERE id > ?",
                (last,),
            )
            positions = [(topic, partition, following) for (topic, partition), following in read.items()]
            self._database.executemany("REPLACE INTO positions VALUES (?, ?, ?)", positions)
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def search(self, text: str) -> tuple[int, list[dict[str, Any]]]:
        """How many lines have all the words, wherever in them, and those that came last."""
        # Each word in quotes: what people type is not an expression of FTS5.
        words = " ".join('"' + word.replace('"', '""') + '"' for word in text.split())
        found = "FROM words WHERE words MATCH ?" if words else "FROM entries WHERE ? = ''"
        count = self._database.execute(f"SELECT count(*) {found}", (words,)).fetchone()[0]
        rows = self._database.execute(
            "SELECT at_ms, host, service, level, message FROM entries "
            f"WHERE id IN (SELECT rowid {found} ORDER BY rowid DESC LIMIT {HITS_MAX}) ORDER BY id DESC",
            (words,),
        )
        names = ("at_ms", "host", "service", "level", "message")
        return count, [dict(zip(names, row, strict=True)) for row in rows]


def to_row(message: Message) -> tuple[int, str, str, str, str]:
    if message.topic() == ENTRIES:
        entry = json.loads(message.value())
        return entry["at_ms"], entry["host"], entry["service"], entry["level"], entry["message"]
    # A line that was not understood can be found all the same.
    why = dict(message.headers() or []).get("__streams.errors.message", b"").decode(errors="replace")
    host = (message.key() or b"").decode(errors="replace")
    line = (message.value() or b"").decode(errors="replace")
    return message.timestamp()[1], host, "dead-letter", "error", f"{line} [{why}]"


def follow(bootstrap_servers: str, index: Index, is_closing: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "log-index",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 3,
            "enable.metrics.push": False,
        }
    )
    try:
        positions = index.positions()
        consumer.assign(
            [
                TopicPartition(topic, number, positions.get((topic, number), OFFSET_BEGINNING))
                for topic in (ENTRIES, DEAD)
                for number in consumer.list_topics(topic, 30).topics[topic].partitions
            ]
        )
        while not is_closing.is_set():
            messages = consumer.consume(BATCH, 0.2)
            for message in messages:
                if (error := message.error()) is not None and not error.retriable():
                    raise KafkaException(error)
            fine = [message for message in messages if message.error() is None]
            if fine:
                read = {(each.topic(), each.partition()): each.offset() + 1 for each in fine}
                index.add(map(to_row, fine), read)
                # Nothing is read from there: so that tools show how far the index is behind.
                consumer.commit(
                    offsets=[TopicPartition(*place, following) for place, following in read.items()]
                )
    finally:
        consumer.close()


def rates_of(rows: Iterable[dict[str, Any]], now_ms: int) -> dict[str, list[dict[str, Any]]]:
    """The last minutes of each service, in order."""
    since_ms = now_ms - MINUTES_SHOWN * 60_000
    shown: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["service"], row["from_ms"])):
        if row["from_ms"] >= since_ms:
            shown.setdefault(row["service"], []).append(row)
    return shown


def app(bootstrap_servers: str, path: str) -> Starlette:
    is_closing = threading.Event()

    def work() -> None:
        index = Index(path)
        while not is_closing.is_set():
            try:
                follow(bootstrap_servers, index, is_closing)
            except KafkaException as error:
                print(f"again in a second: {error}", flush=True)
                is_closing.wait(1)
        index.close()

    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        service.state.index = Index(path)  # to be read from; makes the tables
        thread = threading.Thread(target=work)
        thread.start()
        with TableView(bootstrap_servers, RATES, key=str, value=dict) as service.state.rates:
            yield
        is_closing.set()
        thread.join()
        service.state.index.close()

    async def page(_: Request) -> FileResponse:
        return FileResponse(Path(__file__).with_name("search.html"))

    async def search(request: Request) -> JSONResponse:
        begun = time.perf_counter()
        count, found = request.app.state.index.search(request.query_params.get("q", ""))
        took_ms = (time.perf_counter() - begun) * 1000
        return JSONResponse({"count": count, "lines": found, "took_ms": round(took_ms, 1)})

    async def rates(request: Request) -> JSONResponse:
        rows = [entry.value for entry in request.app.state.rates.all()]
        return JSONResponse(rates_of(rows, int(time.time() * 1000)))

    return Starlette(
        routes=[Route("/", page), Route("/search", search), Route("/rates", rates)], lifespan=life
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--file", default="logs.db")
    parser.add_argument("--port", type=int, default=8097)
    given = parser.parse_args()
    uvicorn.run(
        app(given.bootstrap_server, given.file), host="127.0.0.1", port=given.port, log_level="warning"
    )


if __name__ == "__main__":
    main()
