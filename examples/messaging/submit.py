"""Puts jobs into the queue.

python submit.py "resize a picture" "send a mail"
python submit.py --many 500
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid

from confluent_kafka import Producer

JOBS = "jobs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="*", help="what is to be done")
    parser.add_argument("--many", type=int, default=0, help="and so many more, some of which go wrong")
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    given = parser.parse_args()
    # Whole batches are given to a worker: in large ones, many jobs would wait for one of them.
    producer = Producer(
        {
            "bootstrap.servers": given.bootstrap_server,
            "batch.num.messages": 10,
            # Nor fill one partition after the other: who reads only another had nothing to do.
            "sticky.partitioning.linger.ms": 0,
            "enable.metrics.push": False,
        }
    )
    for text in [*given.text, *made_up(given.many)]:
        producer.produce(JOBS, text if text == "{" else json.dumps({"id": uuid.uuid4().hex, "text": text}))
        producer.poll(0)
    return 1 if producer.flush(30) else 0


def made_up(count: int) -> list[str]:
    """One in a hundred is no job at all, and one in a hundred never succeeds."""
    odd = {0: "{", 1: "stubborn"}
    return [odd.get(number % 100, f"job {number}") for number in range(count)]


if __name__ == "__main__":
    sys.exit(main())
