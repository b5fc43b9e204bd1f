"""What a worker leaves in its config, offset and status topics, without what differs from run to run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

TOPICS = ("connect-configs", "connect-offsets", "connect-status")


def state_records(bootstrap_servers: str, directory: Path) -> dict[str, list[list[Any]]]:
    """For each topic the distinct records, by key and value, in order of their keys."""
    return {topic: _distinct(_read(bootstrap_servers, topic), directory) for topic in TOPICS}


def _read(bootstrap_servers: str, topic: str) -> list[tuple[str, str | None]]:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = []
        for number in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            consumer.assign([TopicPartition(topic, number, low)])
            while consumer.position([TopicPartition(topic, number)])[0].offset < high:
                for message in consumer.consume(1000, timeout=1):
                    value = message.value()
                    found.append((message.key().decode(), None if value is None else value.decode()))
        return found
    finally:
        consumer.close()


def _distinct(records: list[tuple[str, str | None]], directory: Path) -> list[list[Any]]:
    rows: dict[str, list[Any]] = {}
    for key, value in records:
        # Their keys are for workers' requests to each other, which ours do not need.
        if key == "session-key":
            continue
        text = None if value is None else _normal(json.loads(value.replace(str(directory), "/dir")))
        row = [key.replace(str(directory), "/dir"), text]
        rows[json.dumps(row, sort_keys=True)] = row
    return [rows[name] for name in sorted(rows)]


def _normal(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "worker_id" in value:
        value = {**value, "worker_id": "worker", "generation": 0, "version": "version"}
    if isinstance(value.get("trace"), str):
        value["trace"] = re.sub(r"(?s).+", "trace", value["trace"])
    if "topic" in value and isinstance(value["topic"], dict):
        value = {"topic": {**value["topic"], "discoverTimestamp": 0}}
    return value
