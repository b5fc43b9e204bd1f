"""A worker: one of any number that share the jobs of a queue. Ctrl-C lets it finish what it has.

    python worker.py --bootstrap-server localhost:9092

A job is taken by one worker at a time. Who cannot do it now gives it back, and somebody tries again; who
never will be able to, or has seen it fail too often, files it under `jobs-dead`, with why.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

JOBS, DONE, DEAD = "jobs", "jobs-done", "jobs-dead"
GROUP = "workers"
TRIES_MAX = 3
"""Below the broker's own limit (group.share.delivery.count.limit, 5), which gives jobs up without a word."""
_SECONDS_PER_JOB = 0.02

Job = dict[str, Any]


class TryAgainLater(Exception):
    """The job is good, but something it needs is not there."""


@dataclass(frozen=True)
class Settled:
    """What becomes of a job: what the queue is told, and everybody else."""

    acknowledge: AcknowledgeType
    topic: str | None = None
    event: Job | None = None


def settle(value: bytes | None, tries: int, work: Callable[[Job, int], str]) -> Settled:
    job: Job = {}
    try:
        job = parse(value)
        return Settled(AcknowledgeType.ACCEPT, DONE, {**job, "result": work(job, tries), "tries": tries})
    except TryAgainLater as problem:
        if tries < TRIES_MAX:
            return Settled(AcknowledgeType.RELEASE)
        why = f"TryAgainLater: {problem}"
    except Exception as problem:  # a bad job must not end the worker, or it ends all of them in turn
        why = f"{type(problem).__name__}: {problem}"
    text = None if value is None else value.decode(errors="replace")
    dead = {"id": job.get("id"), "why": why, "tries": tries, "job": text}
    return Settled(AcknowledgeType.REJECT, DEAD, dead)


def parse(value: bytes | None) -> Job:
    job = json.loads(value or b"")
    if not isinstance(job, dict) or not isinstance(job.get("id"), str) or "text" not in job:
        raise ValueError("a job is an object with an id and a text")
    return job


def fingerprint(job: Job, tries: int) -> str:
    """The work of this example. One job in ten needs a second try, and some never succeed."""
    time.sleep(_SECONDS_PER_JOB)
    if job["text"] == "stubborn" or (tries == 1 and sum(job["id"].encode()) % 10 == 0):
        raise TryAgainLater("the service it needs did not answer")
    return hashlib.sha256(str(job["text"]).encode()).hexdigest()[:12]


class Worker:
    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self._name = name
        start_with_the_oldest(bootstrap_servers)
        self._events = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        self._jobs = ShareConsumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                # What one worker holds, others wait for.
                "max.poll.records": 10,
            }
        )
        self._jobs.subscribe([JOBS])

    def run(self, is_over: Callable[[], bool]) -> None:
        try:
            while not is_over():
                self._work_on(self._jobs.poll(0.5))
        finally:
            # What it has and has not acknowledged goes to the others at once.
            self._jobs.close()

    def _work_on(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (error := message.error()) is not None:
                logging.warning("%s", error)
                continue
            settled = settle(message.value(), message.delivery_count(), fingerprint)
            if settled.topic is not None:
                # Where it stands in the queue: also of what is no job, and has no id.
                place = f"{message.partition()}/{message.offset()}"
                event = json.dumps({**(settled.event or {}), "place": place, "worker": self._name})
                self._events.produce(settled.topic, event, message.key())
            self._jobs.acknowledge(message, settled.acknowledge)
        # First everybody is told, then the job leaves the queue: dying in between does it twice, never not
        # at all. Who must not see that twice goes by the id (subscriber.py).
        self._events.flush()
        for partition, problem in self._jobs.commit_sync().items():
            if problem is not None:
                logging.warning("%s: not acknowledged, somebody will get it again: %s", partition, problem)


def start_with_the_oldest(bootstrap_servers: str) -> None:
    """A new share group begins with what comes next. A queue has jobs before it has workers."""
    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[reset])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for altered in admin.incremental_alter_configs([group]).values():
        altered.result(30)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--name", default=f"worker-{os.getpid()}")
    given = parser.parse_args()
    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: ended.append(number))
    try:
        Worker(given.bootstrap_server, given.name).run(lambda: bool(ended))
    except KafkaException as problem:
        sys.exit(f"{given.name}: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
