"""What an authorizer costs single-record produce requests: `python -m bench.authorization`.

Three brokers: without an authorizer, and with 1,000 and 100,000 rules. They take turns, so that what else the
machine does hits all of them; the best round of each counts.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from contextlib import ExitStack
from typing import Any

from bench.connection import Connection
from ottla.client.messages import ask_codec
from ottla.records.records import Record, encode_batch
from ottla.testing import BrokerProcess
from ottla.wire.api import ApiKey

TOPIC = "measured"
RULES = (None, 1_000, 100_000)
RULES_AT_ONCE = 5_000
IN_FLIGHT = 20
HEADER = struct.Struct(">hhih")


def frame(api: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    codec = ask_codec(api, version)
    payload = HEADER.pack(api, version, 1, 5) + b"bench" + (b"\0" if codec.flexible else b"")
    payload += codec.write(values)
    return struct.pack(">i", len(payload)) + payload


def rule(number: int) -> dict[str, Any]:
    """Of many users for many topics, every tenth by prefix; the first one is that of the producer."""
    is_prefix = number % 10 == 5
    return {
        "resource_type": 2,
        "resource_name": TOPIC if number == 0 else f"topic-{number % 5000}",
        "resource_pattern_type": 4 if is_prefix else 3,
        "principal": "User:ANONYMOUS" if number == 0 else f"User:user-{number}",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }


def prepared(broker: BrokerProcess, rules: int | None) -> Connection:
    connection = Connection(broker.port)
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = {"topics": [{"name": TOPIC, **made}], "timeout": 30_000}
    connection.send(frame(ApiKey.CREATE_TOPICS, 7, topics))
    connection.receive()
    for first in range(0, rules or 0, RULES_AT_ONCE):
        numbers = range(first, min(first + RULES_AT_ONCE, rules or 0))
        connection.send(frame(ApiKey.CREATE_ACLS, 3, {"creations": [rule(number) for number in numbers]}))
        connection.receive()
    return connection


def seconds_for(connection: Connection, request: bytes, count: int) -> float:
    together = request * IN_FLIGHT
    began = time.perf_counter()
    connection.send(together)
    for _ in range(count // IN_FLIGHT - 1):
        connection.send(together)
        for _ in range(IN_FLIGHT):
            connection.receive()
    for _ in range(IN_FLIGHT):
        connection.receive()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.authorization", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    records = encode_batch([Record(b"key", b"x" * 100, 1_700_000_000_000)])
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 5000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}],
    }
    request = frame(ApiKey.PRODUCE, 9, values)
    with ExitStack() as stack:
        measured: dict[int | None, tuple[BrokerProcess, Connection]] = {}
        for rules in RULES:
            settings: dict[str, Any] = {"log.retention.bytes": 100_000_000}
            if rules is not None:
                settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
                settings["allow.everyone.if.no.acl.found"] = True
            broker = stack.enter_context(BrokerProcess(settings))
            measured[rules] = broker, prepared(broker, rules)
        best = dict.fromkeys(RULES, float("inf"))
        for number in range(options.rounds):
            for rules in RULES if number % 2 else RULES[::-1]:
                taken = seconds_for(measured[rules][1], request, options.requests)
                best[rules] = min(best[rules], taken)
        for rules in RULES:
            rate = options.requests / best[rules]
            share = best[None] / best[rules]
            name = "no authorizer" if rules is None else f"{rules} rules"
            print(f"{name:>15}: {rate:8.0f} requests/s  {share:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
