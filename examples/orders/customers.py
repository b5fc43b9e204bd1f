"""Customers who order: fills the warehouse once, then posts orders to the orders service.

python customers.py --bootstrap-server localhost:9092 --orders http://localhost:8090 --rate 10 --count 500
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from shop.model import CUSTOMERS, DELIVERIES, Customer

from ottla.streams import Serdes

PRODUCTS = {"espresso": 250, "teapot": 3_900, "lamp": 12_900, "desk": 48_000}
PEOPLE = [f"customer-{number}" for number in range(20)]
PIECES = 100_000
AGAIN_S = 0.5
AGAIN_MAX = 120


def fill(bootstrap_servers: str, pieces: int = PIECES) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.metrics.push": False,  # the client would tell of it on the terminal
        }
    )
    amounts, people = Serdes.of(int), Serdes.of(Customer)
    for product in PRODUCTS:
        producer.produce(DELIVERIES, amounts.serialize(pieces), product)
    for person in PEOPLE:
        producer.produce(CUSTOMERS, people.serialize(Customer(person, f"{person}@mail.example")), person)
    if producer.flush(30):
        raise SystemExit("the warehouse could not be filled: the brokers do not answer")


def invented(seed: int, count: int | None) -> Iterator[dict[str, Any]]:
    """Most are fine. Some ask for too many, some for what nobody has, some spend too much."""
    chance = random.Random(seed)
    number = 0
    while count is None or number < count:
        number += 1
        product = chance.choice([*PRODUCTS, "unicorn"] if chance.random() < 0.2 else list(PRODUCTS)[:2])
        yield {
            "id": f"{seed}-{number}",
            "customer": chance.choice(PEOPLE),
            "product": product,
            "quantity": chance.choice([1, 1, 2, 3]) if chance.random() < 0.97 else 1_000,
            "cents": PRODUCTS.get(product, 1),
        }


def post(services: list[str], order: dict[str, Any], number: int = 0) -> int:
    """The status; asks the next instance where one does not answer. Orders have ids: twice is once."""
    body = json.dumps(order).encode()
    for attempt in range(AGAIN_MAX):
        url = f"{services[(number + attempt) % len(services)]}/orders"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except (OSError, TimeoutError):
            pass
        time.sleep(AGAIN_S)
    raise SystemExit(f"order {order['id']} is not taken by any of {', '.join(services)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--orders", action="append", default=None, help="more than once for more instances")
    parser.add_argument("--rate", type=float, default=10.0, help="orders a second")
    parser.add_argument("--count", type=int, default=None, help="until stopped if it is not given")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fill(given.bootstrap_server)
    due = time.monotonic()
    for number, order in enumerate(invented(given.seed, given.count)):
        post(given.orders or ["http://localhost:8090"], order, number)
        due += 1 / given.rate
        time.sleep(max(0.0, due - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
