"""The shop's topics, made once: `python -m shop.topics --bootstrap-server localhost:9092`."""

from __future__ import annotations

import argparse

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from shop.model import COMPACTED, TOPICS

PARTITIONS = 4


def create_topics(bootstrap_servers: str) -> None:
    """As many replicas as the cluster gives a topic that does not say; what is there already stays."""
    admin = AdminClient(
        {"bootstrap.servers": bootstrap_servers, "enable.metrics.push": False, "log_level": 4}
    )
    topics = [NewTopic(name, PARTITIONS) for name in TOPICS]
    topics += [NewTopic(name, PARTITIONS, config={"cleanup.policy": "compact"}) for name in COMPACTED]
    for created in admin.create_topics(topics).values():
        try:
            created.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    create_topics(parser.parse_args().bootstrap_server)
