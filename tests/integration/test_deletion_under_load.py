"""Topics are deleted while everything that works on logs in the background is busy with them."""

from __future__ import annotations

import contextlib
import threading

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "1",
    "log.cleaner.backoff.ms": "1",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "producer.id.expiration.check.interval.ms": "1",
    "log.segment.delete.delay.ms": "0",
}
ROUNDS = 12


@pytest.mark.timeout(90)
def test_deleting_topics_under_flushes_and_retention_leaves_the_broker_up() -> None:
    with BrokerProcess(SETTINGS) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        stop = threading.Event()

        def produce() -> None:
            producer = Producer(
                {**servers, "linger.ms": 0, "message.timeout.ms": 2000, "log_level": 0, "acks": "all"}
            )
            while not stop.is_set():
                # While it is not there.
                with contextlib.suppress(KafkaException, BufferError):
                    for partition in range(4):
                        producer.produce("orders", b"x" * 1000, key=b"k", partition=partition)
                producer.poll(0.005)
            producer.purge()
            producer.flush(2)

        # Partitions that retention goes through before and after those that vanish.
        admin.create_topics([NewTopic("others", 20, 1)])["others"].result(20)
        threads = [threading.Thread(target=produce) for _ in range(3)]
        config = {
            "flush.messages": "1",
            "cleanup.policy": "compact,delete",
            "internal.segment.bytes": "20000",
        }
        for thread in threads:
            thread.start()
        try:
            for _ in range(ROUNDS):
                admin.create_topics([NewTopic("orders", 4, 1, config=config)])["orders"].result(20)
                stop.wait(0.15)
                admin.delete_topics(["orders"])["orders"].result(20)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert "others" in admin.list_topics(timeout=10).topics
        assert "the node cannot go on" not in broker.log
