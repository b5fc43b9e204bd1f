"""Passengers who are offered a seat: most take it after a while, some do not want it, some do not answer.

python passengers.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

import argparse
import heapq
import random
import time

from confluent_kafka import Consumer
from travel import states, topics
from travel.events import Answer, Case
from travel.topic_writer import TopicWriter

from ottla.streams import Serdes

WISHES = ("take", "decline", "nothing")
SHARES = (65, 10, 25)
THINKING_S = (3.0, 12.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    serde = Serdes.of(Case)
    writer = TopicWriter(given.bootstrap_server)
    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap_server,
            "group.id": "passengers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topics.CASES])
    thinking: list[tuple[float, str, Answer]] = []
    while True:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            case = serde.deserialize(message.value())
            wants = chance.choices(WISHES, SHARES)[0]
            if case.state == states.OFFERED and wants != "nothing":
                at = time.monotonic() + chance.uniform(*THINKING_S)
                heapq.heappush(
                    thinking, (at, case.id, Answer(case.id, case.route, case.step, wants == "take"))
                )
        while thinking and thinking[0][0] <= time.monotonic():
            writer.write(heapq.heappop(thinking)[2])


if __name__ == "__main__":
    main()
