"""Kills the pipeline of an example, and compares what came of it."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.spark.processes import wait_until

KILLS = 4
LATER_S_MAX = 6.0


def kill_again_and_again(stage: Any, topic: str) -> None:
    """The pipeline, each time a while after it has written something to the topic since its start."""
    seed = os.environ.get("OTTLA_KILL_SEED") or str(time.time_ns() % 1_000_000)
    print(f"OTTLA_KILL_SEED={seed}")
    dice = random.Random(seed)
    for life in range(KILLS + 1):
        pipeline = stage.run_pipeline("pipeline.py")
        before = end_of(stage.bootstrap_servers, topic)
        wait_until(
            lambda: end_of(stage.bootstrap_servers, topic) > before,  # noqa: B023
            180,
            "results of a pipeline that was started",
        )
        if life < KILLS:
            time.sleep(dice.uniform(0, LATER_S_MAX))
            stage.kill(pipeline)


def end_of(servers: str, topic: str) -> int:
    """Of all partitions together. To read a topic that is always written to may never come to an end."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "end"})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1] for number in partitions]
    consumer.close()
    return sum(ends)


def sorted_by_key(told: Any) -> list[tuple[str, str]]:
    """In the order of each key, which is all that topics keep."""
    return sorted(told, key=lambda each: each[0])
