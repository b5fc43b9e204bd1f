"""Connectors on Spark: a source as a streaming DataFrame, a sink per micro-batch, managed as others are."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "connect"))

from worker_process import our_worker, settings_of

from ottla.connect import REQUIRED, Importance, Setting, Settings, SparkSink, SparkSource, Type
from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.testing import InProcessBroker

WAIT_S = 120.0


class Numbers(SparkSource):
    """Squares, as many a second as are asked for."""

    settings = Settings(
        Setting("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to."),
        Setting("rows.per.second", Type.INT, 10, Importance.MEDIUM, "How many."),
    )

    def read(self, session: Any) -> Any:
        rows = (
            session.readStream.format("rate").option("rowsPerSecond", self.config["rows.per.second"]).load()
        )
        return rows.selectExpr(
            "cast(value AS string) AS key", "named_struct('n', value, 'square', value * value) AS value"
        )


class JsonFiles(SparkSink):
    settings = Settings(
        Setting("directory", Type.STRING, REQUIRED, Importance.HIGH, "Where a file per micro-batch goes to.")
    )

    def write(self, batch: Any, batch_id: int) -> None:
        place = Path(self.config["directory"]) / f"{batch_id}.json"
        rows = batch.selectExpr("key", "value.n AS n", "value.square AS square").toPandas()
        place.write_text(rows.to_json(orient="records"))


PLUGINS = Plugins(
    [
        *installed().of(*Kind),
        Listed(Kind.SOURCE, "Numbers", f"{__name__}:Numbers"),
        Listed(Kind.SINK, "JsonFiles", f"{__name__}:JsonFiles"),
    ]
)


@pytest.fixture
def address(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from ottla.connect.running.spark_query import SparkHost

    # The session is that of all tests here, and goes on after the worker.
    monkeypatch.setattr(SparkHost, "session", lambda self: spark)
    monkeypatch.setattr(SparkHost, "stop", lambda self: None)
    with InProcessBroker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
        given = settings_of(broker.bootstrap_servers) | {
            "ottla.spark.checkpoint.dir": str(tmp_path / "checkpoints"),
            "key.converter": "StringConverter",
            "value.converter": "JsonConverter",
            "task.shutdown.graceful.timeout.ms": "60000",
        }
        with our_worker(given, PLUGINS) as worker:
            yield worker.address


def ask(address: str, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
    return found


def state(address: str, name: str) -> str:
    known = ask(address, "GET", "/connectors?expand=status")
    tasks = known[name]["status"]["tasks"] if name in known else []
    assert not tasks or tasks[0]["state"] != "FAILED", tasks[0].get("trace")
    return str(tasks[0]["state"]) if tasks else ""


def test_a_source_and_a_sink_on_spark_run_pause_and_go_on(address: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def numbers() -> list[int]:
        rows = [row for file in out.glob("*.json") for row in json.loads(file.read_text() or "[]")]
        assert all(row["square"] == row["n"] ** 2 and row["key"] == str(row["n"]) for row in rows)
        return sorted(row["n"] for row in rows)

    ask(address, "PUT", "/connectors/numbers/config", {"connector.class": "Numbers", "topic": "squares"})
    until(lambda: state(address, "numbers") == "RUNNING")
    until(lambda: "squares" in ask(address, "GET", "/connectors/numbers/topics")["numbers"]["topics"])
    sink = {"connector.class": "JsonFiles", "topics": "squares", "directory": str(out)}
    sink["value.schema"] = "n bigint, square bigint"
    ask(address, "PUT", "/connectors/files/config", sink)
    until(lambda: len(numbers()) >= 10)
    ask(address, "PUT", "/connectors/files/pause")
    until(lambda: state(address, "files") == "PAUSED")
    ask(address, "PUT", "/connectors/files/resume")
    before = len(numbers())
    until(lambda: len(numbers()) > before + 5)
    ask(address, "PUT", "/connectors/numbers/stop")
    found = numbers()
    assert found == list(range(len(found)))
