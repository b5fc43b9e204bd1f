"""The clients the tests run with, by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_clients.aio import AiokafkaClient
from kafka_clients.client import KafkaClient, Unavailable
from kafka_clients.confluent import ConfluentClient
from kafka_clients.kafka_python import KafkaPythonClient
from kafka_clients.kcat import KcatClient
from kafka_clients.node import NodeClient


def _kafkajs(bootstrap_servers: str) -> NodeClient:
    return NodeClient("kafkajs", "kafkajs.js", bootstrap_servers, has_header_map=False)


def _platformatic(bootstrap_servers: str) -> NodeClient:
    return NodeClient("platformatic", "platformatic.mjs", bootstrap_servers, has_header_map=True)


CLIENTS: dict[str, Callable[[str], KafkaClient]] = {
    "kafka-python": KafkaPythonClient,
    "confluent-kafka": ConfluentClient,
    "aiokafka": AiokafkaClient,
    "kcat": KcatClient,
    "kafkajs": _kafkajs,
    "platformatic": _platformatic,
}

# Keywords: partitions, config. Returns the topic's name.
NewTopicFixture = Callable[..., str]


class Clients:
    """Each is started once, when first asked for: an agent of Node.js takes a while."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._started: dict[str, KafkaClient] = {}

    def __getitem__(self, name: str) -> KafkaClient:
        if name not in self._started:
            try:
                self._started[name] = CLIENTS[name](self._bootstrap_servers)
            except Unavailable as reason:
                pytest.skip(str(reason))
        return self._started[name]

    def close(self) -> None:
        for client in self._started.values():
            client.close()
