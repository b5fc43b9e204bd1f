"""Apache Kafka's Java producer beside the others: its VerifiableProducer says what was acknowledged."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from pathlib import Path

from bench.kafka_peer import TOOL_HEAP, KafkaDistribution
from tests.integration.cluster.workload import PARTITIONS, check_numbers, read_all

TOPIC = "from-java"
PER_SECOND = 200
STOP_S = 90.0
_CLASS = "org.apache.kafka.tools.VerifiableProducer"


class JavaWriter:
    def __init__(self, kafka: KafkaDistribution, servers: str, directory: Path) -> None:
        self._servers = servers
        self._acknowledged: dict[int, list[int]] = defaultdict(list)
        self._refused: list[str] = []
        settings = directory / "java.properties"
        # The tool has a producer of its own mind: it tries everything once.
        settings.write_text(
            "retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms=60000\nrequest.timeout.ms=10000\n"
        )
        self._argv = kafka.argv(
            _CLASS,
            *("--bootstrap-server", servers, "--topic", TOPIC, "--max-messages", "-1", "--acks", "-1"),
            *("--throughput", str(PER_SECOND), "--command-config", str(settings)),
            heap=TOOL_HEAP,
            log4j="tools.properties",
        )
        self._log = directory / "java.log"
        self._process: subprocess.Popen[str] | None = None
        self._listening = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, stderr=log, text=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            match told["name"]:
                case "producer_send_success":
                    self._acknowledged[told["partition"]].append(int(told["value"]))
                case "producer_send_error":
                    self._refused.append(line)

    def check_alive(self) -> None:
        assert self._process is not None and self._process.poll() is None, self._log.read_text()
        assert not self._refused, f"the Java producer was refused: {self._refused[:3]}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            finally:
                self._process.kill()
            self._listening.join(STOP_S)

    def finish(self) -> str:
        self.check_alive()
        self.stop()
        for partition in range(PARTITIONS):
            found = [int(value) for value in read_all(self._servers, TOPIC, partition)]
            check_numbers(f"{TOPIC}-{partition}", self._acknowledged[partition], found)
        return f"{sum(map(len, self._acknowledged.values()))} records of the Java producer acknowledged"
