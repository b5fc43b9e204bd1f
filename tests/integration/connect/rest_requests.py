"""Requests to a Connect worker, good and bad, in an order in which each finds what the ones before it left.

They go to Apache Kafka's worker (`kafka_rest_answers.py` keeps what it says) and to ours, which has to say
the same.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WAIT_S = 60.0
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@dataclass(frozen=True)
class Ask:
    """One request; `until` repeats it until the answer has that text, for what happens in the background;
    `one and another` stand for two."""

    method: str
    path: str
    body: Any = None
    raw: str | None = None
    until: str = ""
    compare: str = "all"
    """`all` of the answer, or the `status` alone where the rest names Java's classes or its libraries."""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        sent = self.raw if self.raw is not None else json.dumps(self.body) if self.body is not None else ""
        return f"{self.method} {self.path} {sent}".strip()


def source(who: str, directory: Path, **more: str | None) -> dict[str, str]:
    given = {
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": f"{directory}/in.txt",
        "topic": f"{who}-lines",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return {key: value for key, value in given.items() if value is not None}


def sink(directory: Path, **more: str | None) -> dict[str, str]:
    given = {
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "file": f"{directory}/out.txt",
        "topics": "kept-lines",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return {key: value for key, value in given.items() if value is not None}


def scenario(directory: Path) -> Iterator[Ask]:
    yield from nothing_there()
    yield from bad_configurations(directory)
    yield from life_of_a_source(directory)
    yield from life_of_a_sink(directory)
    yield from plugins(directory)
    yield from loggers()
    yield from the_end()


def nothing_there() -> Iterator[Ask]:
    yield Ask("GET", "/", compare="status")
    yield Ask("GET", "/health", until="healthy")
    yield Ask("GET", "/connectors")
    yield Ask("GET", "/connectors?expand=status&expand=info")
    yield Ask("GET", "/nowhere")
    yield Ask("DELETE", "/connectors")
    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/offsets", "/topics"):
        yield Ask("GET", f"/connectors/none{path}")
    for path in ("/pause", "/resume", "/stop", "/topics/reset"):
        yield Ask("PUT", f"/connectors/none{path}")
    yield Ask("DELETE", "/connectors/none")
    yield Ask("DELETE", "/connectors/none/offsets")
    yield Ask("PATCH", "/connectors/none/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]})
    yield Ask("PATCH", "/connectors/none/config", {"a": "b"})
    for path in ("/restart", "/restart?includeTasks=true", "/tasks/0/restart"):
        yield Ask("POST", f"/connectors/none{path}")


def bad_configurations(directory: Path) -> Iterator[Ask]:
    yield Ask("POST", "/connectors", raw="{", compare="status")
    yield Ask("POST", "/connectors", raw="", compare="status")
    yield Ask("POST", "/connectors", [], compare="status")
    yield Ask("POST", "/connectors", {"name": "a", "unknown": 1}, compare="status")
    yield Ask(
        "POST", "/connectors", {"name": "a", "config": {}, "initial_state": "DANCING"}, compare="status"
    )
    yield Ask("POST", "/connectors", {"name": "a", "config": {}})
    yield Ask("POST", "/connectors", {"name": "a", "config": {"name": "b"}})
    yield Ask("POST", "/connectors", {"name": "", "config": source("x", directory)})
    yield Ask(
        "POST",
        "/connectors",
        {"name": "a", "config": {"connector.class": "NoSuchConnector"}},
        compare="status",
    )
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, topic=None)})
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, topic="")})
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, tasks_max="none")})
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, tasks_max="0")})
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, errors_tolerance="some")})
    yield Ask("POST", "/connectors", {"name": "a", "config": source("a", directory, transforms="t")})
    unknown_type = source("a", directory, transforms="t") | {"transforms.t.type": "NoSuchTransform"}
    yield Ask("POST", "/connectors", {"name": "a", "config": unknown_type}, compare="status")
    yield Ask("POST", "/connectors", {"name": "a", "config": sink(directory, topics=None)})
    yield Ask("POST", "/connectors", {"name": "a", "config": sink(directory, topics_regex="x.*")})
    yield Ask("PUT", "/connectors/a/config", source("a", directory, name="b"))
    yield Ask("PUT", "/connectors/a/config", raw="nonsense", compare="status")
    yield Ask("GET", "/connectors")


def life_of_a_source(directory: Path) -> Iterator[Ask]:
    wanted = source("lines", directory)
    yield Ask("POST", "/connectors", {"name": "lines", "config": wanted})
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("GET", "/connectors")
    yield Ask("GET", "/connectors/lines")
    yield Ask("GET", "/connectors/lines/config")
    yield Ask("GET", "/connectors/lines/tasks")
    yield Ask("GET", "/connectors/lines/tasks/0/status")
    yield Ask("GET", "/connectors/lines/tasks/1/status")
    yield Ask("GET", "/connectors/lines/tasks/x/status", compare="status")
    yield Ask("GET", "/connectors?expand=status&expand=info&expand=nonsense")
    yield Ask("POST", "/connectors", {"name": "lines", "config": wanted})
    yield Ask("GET", "/connectors/lines/offsets", until='"position": 14')
    yield Ask("GET", "/connectors/lines/topics", until="lines-lines")
    yield Ask("PUT", "/connectors/lines/topics/reset")
    yield Ask("GET", "/connectors/lines/topics", until='"topics": []')
    yield Ask("PUT", "/connectors/lines/config", wanted | {"batch.size": "100"})
    yield Ask("GET", "/connectors/lines/tasks", until="batch.size")
    yield Ask("PATCH", "/connectors/lines/config", {"batch.size": None, "errors.log.enable": "true"})
    yield Ask("PATCH", "/connectors/lines/config", {"tasks.max": "x"})
    yield Ask("GET", "/connectors/lines/config")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask(
        "PATCH", "/connectors/lines/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]}
    )
    yield Ask("PATCH", "/connectors/lines/offsets", {"offsets": []})
    yield Ask("DELETE", "/connectors/lines/offsets")
    yield Ask("PUT", "/connectors/lines/pause")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "PAUSED"')
    yield Ask("PUT", "/connectors/lines/pause")
    yield Ask("PUT", "/connectors/lines/resume")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("POST", "/connectors/lines/restart")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("POST", "/connectors/lines/restart?includeTasks=true")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("POST", "/connectors/lines/restart?onlyFailed=true")
    yield Ask("POST", "/connectors/lines/restart?includeTasks=true&onlyFailed=true")
    yield Ask("POST", "/connectors/lines/tasks/0/restart")
    yield Ask("POST", "/connectors/lines/tasks/7/restart")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("PUT", "/connectors/lines/stop")
    yield Ask("GET", "/connectors/lines/status", until='"tasks": [] and STOPPED')
    yield Ask("GET", "/connectors/lines/tasks")
    yield Ask("GET", "/connectors/lines/offsets")
    place = {"filename": f"{directory}/in.txt"}
    bad = [
        {"partition": place, "offset": {"position": "x"}},
        {"partition": place, "offset": {"position": -1}},
        {"partition": {"wrong": "x"}, "offset": {"position": 1}},
        {"partition": place, "offset": {"other": 1}},
    ]
    for row in bad:
        yield Ask("PATCH", "/connectors/lines/offsets", {"offsets": [row]}, compare="status")
    yield Ask(
        "PATCH", "/connectors/lines/offsets", {"offsets": [{"partition": place, "offset": {"position": 4}}]}
    )
    yield Ask("GET", "/connectors/lines/offsets")
    yield Ask("PATCH", "/connectors/lines/offsets", {"offsets": [{"partition": place, "offset": None}]})
    yield Ask("GET", "/connectors/lines/offsets")
    yield Ask("DELETE", "/connectors/lines/offsets")
    yield Ask("PUT", "/connectors/lines/resume")
    yield Ask("GET", "/connectors/lines/status", until='"id": 0, "state": "RUNNING"')
    stopped = {"name": "later", "config": source("later", directory), "initial_state": "STOPPED"}
    yield Ask("POST", "/connectors", stopped)
    yield Ask("GET", "/connectors/later/status", until="STOPPED")
    yield Ask("DELETE", "/connectors/later")


def life_of_a_sink(directory: Path) -> Iterator[Ask]:
    yield Ask("PUT", "/connectors/kept/config", source("kept", directory))
    yield Ask("PUT", "/connectors/copy/config", sink(directory))
    yield Ask("GET", "/connectors/copy/status", until='"id": 0, "state": "RUNNING"')
    yield Ask("GET", "/connectors/copy")
    yield Ask("GET", "/connectors/copy/offsets", until="kafka_offset")
    yield Ask("GET", "/connectors/copy/topics", until="kept-lines")
    yield Ask("PUT", "/connectors/copy/stop")
    yield Ask("GET", "/connectors/copy/status", until='"tasks": [] and STOPPED')
    place = {"kafka_topic": "kept-lines", "kafka_partition": 0}
    for row in (
        {"partition": {"topic": "kept-lines"}, "offset": {"kafka_offset": 1}},
        {"partition": place, "offset": {"offset": 1}},
        {"partition": place, "offset": {"kafka_offset": "x"}},
        {"partition": {**place, "kafka_partition": "x"}, "offset": {"kafka_offset": 1}},
        {"partition": place, "offset": {"kafka_offset": -5}},
    ):
        yield Ask("PATCH", "/connectors/copy/offsets", {"offsets": [row]})
    yield Ask(
        "PATCH",
        "/connectors/copy/offsets",
        {"offsets": [{"partition": place, "offset": {"kafka_offset": 1}}]},
    )
    yield Ask("GET", "/connectors/copy/offsets")
    yield Ask("DELETE", "/connectors/copy/offsets")
    yield Ask("GET", "/connectors/copy/offsets")


def plugins(directory: Path) -> Iterator[Ask]:
    yield Ask("GET", "/connector-plugins", compare="status")
    yield Ask("GET", "/connector-plugins?connectorsOnly=false", compare="status")
    yield Ask("GET", "/connector-plugins/NoSuch/config")
    for plugin in (
        "FileStreamSource",
        "FileStreamSinkConnector",
        "JsonConverter",
        "StringConverter",
        "RegexRouter",
        "TopicNameMatches",
    ):
        yield Ask("GET", f"/connector-plugins/{plugin}/config")
    yield Ask("PUT", "/connector-plugins/FileStreamSource/config/validate", source("x", directory, name="x"))
    yield Ask(
        "PUT", "/connector-plugins/FileStreamSource/config/validate", {"connector.class": "FileStreamSource"}
    )
    yield Ask("PUT", "/connector-plugins/FileStreamSink/config/validate", sink(directory, name="x"))
    yield Ask("PUT", "/connector-plugins/FileStreamSink/config/validate", source("x", directory))
    yield Ask("PUT", "/connector-plugins/FileStreamSource/config/validate", {})
    several = {
        "transforms": "route,add",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(.*",
        "transforms.add.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.add.field": "line",
        "transforms.add.predicate": "mine",
        "predicates": "mine",
        "predicates.mine.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.mine.pattern": "x.*",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "maybe",
    }
    yield Ask(
        "PUT",
        "/connector-plugins/FileStreamSource/config/validate",
        source("x", directory, name="x") | several,
    )


def loggers() -> Iterator[Ask]:
    yield Ask("GET", "/admin/loggers", compare="status")
    yield Ask("GET", "/admin/loggers/no.such.logger")
    yield Ask("PUT", "/admin/loggers/some.logger", {})
    yield Ask("PUT", "/admin/loggers/some.logger", {"level": "LOUD"})
    yield Ask("PUT", "/admin/loggers/some.logger", {"level": "DEBUG"})
    yield Ask("GET", "/admin/loggers/some.logger", compare="status")
    yield Ask("PUT", "/admin/loggers/some.logger?scope=cluster", {"level": "INFO"})


def the_end() -> Iterator[Ask]:
    for name in ("lines", "kept", "copy"):
        yield Ask("DELETE", f"/connectors/{name}")
    yield Ask("GET", "/connectors")
    yield Ask("GET", "/connectors/lines")
    yield Ask("GET", "/connectors/lines/status", until="404")


def answers(address: str, directory: Path) -> Iterator[tuple[Ask, dict[str, Any]]]:
    """What a worker says to each; `directory` has in.txt with some lines."""
    for ask in scenario(directory):
        yield ask, _answer(address, ask, directory)


def _answer(address: str, ask: Ask, directory: Path) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = _send(address, ask)
        # While workers rebalance Kafka's refuses changes; asking again is what its documents say to do.
        is_passing = found["status"] == 409 and "rebalance" in json.dumps(found["body"])
        if not is_passing and all(text in json.dumps(found) for text in ask.until.split(" and ")):
            break
        if time.monotonic() > deadline:
            raise AssertionError(f"{ask.name}: no {ask.until!r} in {found}")
        time.sleep(0.1)
    return normal(found, address, directory)


def _send(address: str, ask: Ask) -> dict[str, Any]:
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    body = ask.raw if ask.raw is not None else None if ask.body is None else json.dumps(ask.body)
    connection.request(ask.method, ask.path, body, {"Content-Type": "application/json", **ask.headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    try:
        content = json.loads(text) if text else None
    except ValueError:
        content = text
    return {"status": answer.status, "location": answer.headers.get("Location"), "body": content}


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """What their answer has and ours says otherwise. Ours may have more settings, plugins and groups
    of settings."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [line for name in theirs for line in differences(ours[name], theirs[name], f"{path}.{name}")]
    if isinstance(ours, list) and isinstance(theirs, list):
        if path.endswith((".recommended_values", ".groups")):
            missing = [each for each in theirs if each not in ours]
            return [f"{path}: {missing[0]} is missing"] if missing else []
        if theirs and (names := _setting_names(theirs)) is not None:
            found = dict(zip(_setting_names(ours) or [], ours, strict=True))
            pairs = zip(names, theirs, strict=True)
            return [
                line for name, row in pairs for line in differences(found.get(name), row, f"{path}[{name}]")
            ]
        if len(ours) == len(theirs):
            rows = enumerate(zip(ours, theirs, strict=True))
            return [line for at, (our, their) in rows for line in differences(our, their, f"{path}[{at}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} instead of {theirs!r}"]


def _setting_names(rows: list[Any]) -> list[str] | None:
    """Of settings, or of settings with their values; None for lists of other things."""
    if all(isinstance(row, dict) and "order_in_group" in row for row in rows):
        return [row["name"] for row in rows]
    if all(isinstance(row, dict) and row.keys() == {"definition", "value"} for row in rows):
        return [row["value"]["name"] for row in rows]
    return None


def normal(found: dict[str, Any], address: str, directory: Path) -> dict[str, Any]:
    """Without what differs from run to run: addresses, directories, versions."""
    text = json.dumps(found).replace(str(directory), "/dir")
    text = re.sub(r'("worker_id": )"[^"]*"', r'\1"worker"', text)
    text = re.sub(r'"\d+\.\d+\.\d+"', '"version"', text)
    # How an expression is wrong everybody says in words of his own, and what a setting is for.
    text = re.sub(r'(Invalid regex: )[^"]*', r"\1…", text)
    text = re.sub(r'"documentation": "(?:[^"\\]|\\.)*", ', "", text)
    text = text.replace(address, "worker")
    return dict(json.loads(text))
