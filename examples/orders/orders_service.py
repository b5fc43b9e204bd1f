"""Takes orders and tells what became of them, over HTTP. Any number of instances, all alike.

POST /orders        {"id": …, "customer": …, "product": …, "quantity": 2, "cents": 999}: 201, 200 if known
GET  /orders/ID     the order as it is now
GET  /orders/ID?wait=10     the same, but not before its state is final, for so many seconds at most

An instance keeps nothing that another does not have: a POST is an event in the topic `orders`, and GET is
answered from that topic, read as a table.

    python orders_service.py --bootstrap-server localhost:9092 --port 8090
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from confluent_kafka import Producer
from shop.model import FINAL, ORDERS, Order
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ottla.streams import Serdes, TableView

LOOK_S = 0.02
WAIT_S_MAX = 60.0
FIELDS: dict[str, type] = {"customer": str, "product": str, "quantity": int, "cents": int}


class Log:
    """The topic of orders, to be written to."""

    def __init__(self, bootstrap_servers: str) -> None:
        # The partitioner of Kafka Streams, so that an order and what belongs to it share a partition.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )
        self._serde = Serdes.of(Order)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()
        self._producer.flush(10)

    def _poll(self) -> None:
        while not self._is_closing.is_set():
            self._producer.poll(0.1)

    async def append(self, order: Order) -> None:
        """Returns when all replicas in sync have it."""
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[None] = loop.create_future()

        def settle(error: Any) -> None:
            if delivered.cancelled():
                return
            if error is None:
                delivered.set_result(None)
            else:
                delivered.set_exception(HTTPException(503, f"not stored: {error}; send it again"))

        def told(error: Any, _: Any) -> None:
            loop.call_soon_threadsafe(settle, error)

        self._producer.produce(ORDERS, self._serde.serialize(order), order.id, on_delivery=told)
        await delivered


def parse(body: Any) -> Order:
    """Only what has the shape of an order is stored; whether it makes sense is for the checks to say."""
    if not isinstance(body, dict):
        raise HTTPException(400, "the body must be a JSON object")
    unknown = sorted(set(body) - {*FIELDS, "id"})
    if unknown:
        raise HTTPException(400, f"unknown field {unknown[0]}; an order has id, {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if type(body.get(name)) is not kind:
            raise HTTPException(400, f"{name} is {body.get(name)!r}; give a {kind.__name__}")
    number = body.get("id", "") or uuid.uuid4().hex
    if not isinstance(number, str) or "/" in number:
        raise HTTPException(400, f"id is {number!r}; give a text without a slash, or none")
    return Order(number, **{name: body[name] for name in FIELDS})


def app(bootstrap_servers: str) -> Starlette:
    @asynccontextmanager
    async def life(service: Starlette) -> AsyncIterator[None]:
        service.state.log = Log(bootstrap_servers)
        service.state.orders = TableView(bootstrap_servers, ORDERS, key=str, value=Order)
        yield
        service.state.orders.close()
        service.state.log.close()

    async def take(request: Request) -> JSONResponse:
        try:
            order = parse(await request.json())
        except json.JSONDecodeError as error:
            raise HTTPException(400, f"not JSON: {error}") from None
        known = request.app.state.orders.get(order.id)
        if known is None:
            await request.app.state.log.append(order)
        where = {"Location": f"/orders/{order.id}"}
        return JSONResponse(
            dataclasses.asdict(known or order), status_code=201 if known is None else 200, headers=where
        )

    async def tell(request: Request) -> JSONResponse:
        number = request.path_params["id"]
        try:
            left = min(float(request.query_params.get("wait", 0)), WAIT_S_MAX)
        except ValueError:
            raise HTTPException(400, "wait is a number of seconds") from None
        while True:
            order = request.app.state.orders.get(number)
            if (order is not None and order.state in FINAL) or left <= 0:
                break
            await asyncio.sleep(LOOK_S)
            left -= LOOK_S
        if order is None:
            raise HTTPException(404, f"there is no order {number}")
        return JSONResponse(dataclasses.asdict(order))

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, status_code=error.status_code)

    return Starlette(
        routes=[Route("/orders", take, methods=["POST"]), Route("/orders/{id}", tell)],
        exception_handlers={HTTPException: refused},
        lifespan=life,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--port", type=int, default=8090)
    given = parser.parse_args()
    uvicorn.run(app(given.bootstrap_server), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
