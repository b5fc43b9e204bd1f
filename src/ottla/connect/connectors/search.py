"""Topics into Elasticsearch or OpenSearch: documents by the bulk interface, an index per topic.

A document's id is the record's key, or its place in the topic, so that writing it again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.connect.connectors.http_calls import CONNECTION, Caller, as_json, is_url, passes
from ottla.connect.data import plain
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import Config, SinkConnector, SinkTask
from ottla.connect.records import SinkRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, not_empty, one_of
from ottla.connect.text import to_text

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_JSON_LINES: Final = {"Content-Type": "application/x-ndjson"}


class _Operation(NamedTuple):
    record: SinkRecord
    action: str
    lines: bytes


class SearchSinkTask(SinkTask):
    def start(self, given: Config) -> None:
        self._config = SearchSink.settings.parse(given)
        url = self._config["connection.url"]
        self._caller = Caller(url, self._config, self.context.wait)
        self._path = urlsplit(url).path.rstrip("/") + "/_bulk"

    def put(self, records: Sequence[SinkRecord]) -> None:
        for bulk in self._bulks(records):
            self._write(bulk)

    def stop(self) -> None:
        self._caller.close()

    def _bulks(self, records: Sequence[SinkRecord]) -> Iterator[list[_Operation]]:
        bulk: list[_Operation] = []
        size = 0
        for record in records:
            try:
                operation = self._operation(record)
            except DataError as error:
                self.context.report(record, error)
                continue
            if operation is None:
                continue
            length = len(operation.lines)
            if bulk and (
                len(bulk) >= self._config["batch.size"] or size + length > self._config["bulk.size.bytes"]
            ):
                yield bulk
                bulk, size = [], 0
            bulk.append(operation)
            size += length
        if bulk:
            yield bulk

    def _operation(self, record: SinkRecord) -> _Operation | None:
        place = f"{record.original_topic}+{record.original_partition}+{record.offset}"
        head: dict[str, Any] = {"_index": self._config["index"].replace("${topic}", record.topic).lower()}
        if self._config["key.ignore"]:
            head["_id"] = place
        elif record.key is None:
            raise DataError("a record without a key has no id: set key.ignore=true to number documents")
        else:
            head["_id"] = to_text(plain(record.key))
            if self._config["external.versions"]:
                head |= {"version": record.offset, "version_type": "external_gte"}
        if record.value is None:
            return self._tombstone(record, head)
        document = plain(record.value)
        if not isinstance(document, Mapping):
            raise DataError(
                f"a document has fields, and the value is {type(document).__name__}: use a transform such as "
                "HoistField"
            )
        body = as_json(document)
        return _Operation(record, "index", f"{json.dumps({'index': head})}\n{body}\n".encode())

    def _tombstone(self, record: SinkRecord, head: Mapping[str, Any]) -> _Operation | None:
        behavior = self._config["behavior.on.null.values"]
        if behavior == "fail":
            raise DataError("a record without a value: set behavior.on.null.values to delete or ignore")
        if behavior == "ignore" or self._config["key.ignore"]:
            return None
        return _Operation(record, "delete", f"{json.dumps({'delete': head})}\n".encode())

    def _write(self, bulk: Sequence[_Operation]) -> None:
        body = b"".join(operation.lines for operation in bulk)
        answer = self._caller.call("POST", self._path, body, _JSON_LINES)
        if not answer.is_fine:
            raise ConnectError(f"{self._config['connection.url']} takes no documents: {answer.shown}")
        found = json.loads(answer.body)
        if not found.get("errors"):
            return
        refused = []
        for operation, item in zip(bulk, found["items"], strict=True):
            (result,) = item.values()
            status = result["status"]
            if passes(status):
                raise RetriableError(f"documents of {result.get('_index')} are refused for now: {result}")
            # A conflict: a later record of this key is there.
            is_done = status < 300 or status == _CONFLICT
            if not is_done and (operation.action, status) != ("delete", _NOT_FOUND):
                refused.append((operation.record, result))
        for record, result in refused:
            reason = result.get("error", {})
            told = f"{result.get('_index')} refuses it: {reason.get('type')}: {reason.get('reason')}"
            self.context.report(record, DataError(told))


class SearchSink(SinkConnector):
    guarantee: ClassVar[str] = (
        "Exactly once in effect: the id of a document is the record's key, or with `key.ignore` its topic, "
        "partition and offset, so that a record that comes again after a failure replaces itself. With keys "
        "the offset is the document's version, so that an earlier record never replaces a later one."
    )
    settings: ClassVar[Settings] = Settings(
        Setting(
            "connection.url",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "The server's address, as https://localhost:9200.",
            is_url,
        ),
        *CONNECTION,
        Setting(
            "index", Type.STRING, "${topic}", Importance.HIGH, "The index, with ${topic} in it.", not_empty
        ),
        Setting(
            "key.ignore",
            Type.BOOLEAN,
            False,
            Importance.HIGH,
            "Whether documents are numbered by topic, partition and offset; else their id is the key.",
        ),
        Setting(
            "external.versions",
            Type.BOOLEAN,
            True,
            Importance.LOW,
            "Whether offsets are the versions of documents with keys. After a topic was created anew its "
            "offsets are lower than those in the index: use another index, or set this to false.",
        ),
        Setting(
            "behavior.on.null.values",
            Type.STRING,
            "delete",
            Importance.MEDIUM,
            "What a record without a value does to the document of its key: delete, ignore or fail.",
            one_of("delete", "ignore", "fail"),
        ),
        Setting(
            "batch.size", Type.INT, 2000, Importance.LOW, "The most documents in a request.", at_least(1)
        ),
        Setting(
            "bulk.size.bytes", Type.LONG, 5 << 20, Importance.LOW, "The most bytes in a request.", at_least(1)
        ),
    )
    task_class = SearchSinkTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given for _ in range(tasks_max)]
