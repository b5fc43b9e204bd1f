"""Asks Apache Kafka with its StandardAuthorizer what the matrix asks, and writes `answers.json`.

    python tests/integration/access/kafka_answers.py

Needs Apache Kafka's jars, from the cache or through Maven.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import kafka_peer
from bench.brokers import free_port
from matrix import ANSWERS, CASES, Cluster, ask

from ottla.wire.api import ApiKey

START_SECONDS_MAX = 120
SETTLE_SECONDS = 0.3
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=SASL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=SASL
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username=admin password=admin user_admin=admin user_alice=alice;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
log.dirs={data}
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


@contextmanager
def kafka(directory: str) -> Iterator[int]:
    distribution = kafka_peer.fetch()
    port = free_port()
    properties = Path(directory, "server.properties")
    properties.write_text(PROPERTIES.format(port=port, controller=free_port(), data=f"{directory}/data"))
    formatted = distribution.run_tool(
        "kafka.tools.StorageTool",
        "format",
        "--standalone",
        "--cluster-id=4L6g3nShT-eMCtK--X86sw",
        f"--config={properties}",
        timeout_s=START_SECONDS_MAX,
    )
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr
    argv = distribution.argv(
        "kafka.Kafka", str(properties), heap=kafka_peer.SERVER_HEAP, log4j="server.properties"
    )
    with Path(directory, "server.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


def logged_in(port: int, name: str) -> socket.socket:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            ask(connection, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            token = f"\0{name}\0{name}".encode()
            answer = ask(connection, ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
            assert answer.error_code == 0, answer
            return connection
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, kafka(directory) as port:
        cluster = Cluster(logged_in(port, "admin"), logged_in(port, "alice"), SETTLE_SECONDS)
        answers = {case.name: cluster.answers(case) for case in CASES}
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
