"""Publishes how this machine is doing, once a second; `--pretend 5` makes up five hosts, one with a bad day.

python agent.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import time
from collections.abc import Mapping

from confluent_kafka import Producer

TOPIC = "host-metrics"
PERIOD_S = 60.0


def measured() -> Mapping[str, float]:
    """Of this machine, as percentages."""
    memory = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, value = line.split(":")
            memory[name] = int(value.split()[0])
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return {"cpu": 100 * load, "memory": 100 * (1 - memory["MemAvailable"] / memory["MemTotal"])}


def pretended(host: int, seconds: float) -> Mapping[str, float]:
    """Host 0 is overloaded half of the time."""
    wave = math.sin(2 * math.pi * seconds / PERIOD_S + host)
    cpu = 95 + 4 * wave if host == 0 and seconds % PERIOD_S < PERIOD_S / 2 else 40 + 20 * wave
    return {"cpu": cpu, "memory": 50 + 10 * wave}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--pretend", type=int, default=0, metavar="HOSTS")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    given = parser.parse_args()
    # A figure that is late is worth little: nothing is kept for long when the brokers are away.
    producer = Producer(
        {
            "bootstrap.servers": given.bootstrap_server,
            "partitioner": "murmur2_random",
            "message.timeout.ms": 10_000,
        }
    )
    due = time.monotonic()
    while True:
        if given.pretend:
            figures = {f"host-{number}": pretended(number, due) for number in range(given.pretend)}
        else:
            figures = {socket.gethostname(): measured()}
        for host, values in figures.items():
            producer.produce(TOPIC, json.dumps(values), host)
        producer.poll(0)
        due += given.interval
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
