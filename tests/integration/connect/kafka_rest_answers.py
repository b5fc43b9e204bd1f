"""Asks Apache Kafka's own Connect worker what `rest_requests.py` has, and keeps its answers.

python tests/integration/connect/kafka_rest_answers.py > tests/integration/connect/rest_answers.json
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]

from bench import kafka_peer  # noqa: E402
from bench.brokers import free_port  # noqa: E402
from bench.maven import CACHE, fetch_jars, find_java  # noqa: E402
from rest_requests import Ask, answers  # noqa: E402
from state_topics import state_records  # noqa: E402

from ottla.testing import InProcessBroker  # noqa: E402

PARTS = ("connect-runtime", "connect-file", "connect-json", "connect-transforms")
WORKER = """\
bootstrap.servers={bootstrap}
group.id=connect-{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=1
offset.flush.interval.ms=500
listeners=HTTP://127.0.0.1:{port}
rest.advertised.host.name=127.0.0.1
scheduled.rebalance.max.delay.ms=0
plugin.discovery=service_load
"""


@contextmanager
def kafka_worker(bootstrap: str, directory: Path) -> Iterator[str]:
    """The address of a worker of Apache Kafka; PeerUnavailable where its jars cannot be had."""
    java = find_java("Apache Kafka Connect")
    artifacts = [f"org.apache.kafka:{part}:{kafka_peer.VERSION}" for part in PARTS]
    log4j = f"org.apache.logging.log4j:log4j-slf4j-impl:{kafka_peer.LOG4J_VERSION}"
    libs = fetch_jars(CACHE / "kafka-connect" / kafka_peer.VERSION, "Kafka Connect", *artifacts, log4j)
    port = free_port()
    (directory / "worker.properties").write_text(WORKER.format(bootstrap=bootstrap, port=port))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    argv = [java, "-Xmx512M", "-cp", f"{libs}/*", main, str(directory / "worker.properties")]
    with (directory / "worker.out").open("wb") as output:
        worker = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_up(f"127.0.0.1:{port}", worker)
        yield f"127.0.0.1:{port}"
    finally:
        worker.terminate()
        worker.wait(60)


def wait_until_up(address: str, worker: subprocess.Popen[bytes]) -> None:
    import time
    import urllib.request

    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/connectors", timeout=10):
                return
        except OSError:
            if worker.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Raises PeerUnavailable."""
    (directory / "in.txt").write_text("one\ntwo\nthree\n")
    with InProcessBroker() as broker:
        with kafka_worker(broker.bootstrap_servers, directory) as address:
            told = [
                [ask.name.replace(str(directory), "/dir"), _kept(ask, answer)]
                for ask, answer in answers(address, directory)
            ]
        return {"answers": told, "topics": state_records(broker.bootstrap_servers, directory)}


def _kept(ask: Ask, answer: dict[str, Any]) -> dict[str, Any]:
    """Where only the status is compared, the rest is Java's own."""
    return answer if ask.compare == "all" else {"status": answer["status"]}


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        json.dump(ask_kafka(Path(home)), sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
