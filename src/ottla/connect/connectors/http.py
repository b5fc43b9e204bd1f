"""HTTP: records sent to an address, and an address that is asked for new records again and again."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

from ottla.connect.connectors.http_calls import CONNECTION, Answer, Caller, as_json, is_url
from ottla.connect.data import STRING, plain
from ottla.connect.errors import ConnectError, DataError, RetriableError, SettingError
from ottla.connect.plugin import Config, SinkConnector, SinkTask, SourceConnector, SourceTask
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, one_of, topic_name
from ottla.connect.text import to_text

_OFFSET: Final = "${offset}"
_HEADER: Final = re.compile(r"[!#-9;-~]+:[\t -~]*")
_log = logging.getLogger(__name__)


def _pairs(name: str, value: Any) -> None:
    for each in value or ():
        if not _HEADER.fullmatch(each):
            raise SettingError.of(name, each, "A header is name:value, in one line of ASCII characters")


_HEADERS = Setting(
    "headers", Type.LIST, [], Importance.MEDIUM, "Headers of requests, as name:value,name:value.", _pairs
)


def _headers(config: Mapping[str, Any]) -> dict[str, str]:
    split = (each.partition(":") for each in config["headers"])
    return {name.strip(): value.strip() for name, _, value in split}


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class HttpSinkTask(SinkTask):
    def start(self, given: Config) -> None:
        self._config = HttpSink.settings.parse(given)
        self._caller = Caller(self._config["url"], self._config, self.context.wait)
        self._path = _path_of(self._config["url"])
        self._headers = {"Content-Type": "application/json", **_headers(self._config)}

    def put(self, records: Sequence[SinkRecord]) -> None:
        bodies: list[tuple[SinkRecord, str]] = []
        for record in records:
            try:
                bodies.append((record, as_json(record.value)))
            except DataError as error:
                self.context.report(record, error)
        size = self._config["batch.size"]
        for start in range(0, len(bodies), size):
            self._send(bodies[start : start + size])

    def stop(self) -> None:
        self._caller.close()

    def _send(self, batch: Sequence[tuple[SinkRecord, str]]) -> None:
        records = [record for record, _ in batch]
        first = records[0]
        key = "" if first.key is None else to_text(plain(first.key))
        path = self._path.replace("${topic}", quote(first.topic, safe=""))
        path = path.replace("${key}", quote(key, safe=""))
        texts = ",".join(text for _, text in batch)
        body = (f"[{texts}]" if self._config["batch.size"] > 1 else texts).encode()
        place = f"{first.original_topic}-{first.original_partition}@{first.offset}+{len(records)}"
        headers = {**self._headers, "Idempotency-Key": place}
        answer = self._caller.call(self._config["method"], path, body, headers)
        if not answer.is_fine:
            error = DataError(f"{self._config['url']} refuses it: {answer.shown}")
            for record in records:
                self.context.report(record, error)


class HttpSink(SinkConnector):
    guarantee: ClassVar[str] = (
        "At least once: offsets are committed after the server has answered. Each request has a header "
        "`Idempotency-Key` with topic, partition, offset and number of records; a server that remembers it, "
        "or `PUT` to an address with `${key}`, makes exactly once of it."
    )
    settings: ClassVar[Settings] = Settings(
        Setting(
            "url",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "Where records are sent to, with ${topic} and ${key} in its path or query.",
            is_url,
        ),
        Setting(
            "method",
            Type.STRING,
            "POST",
            Importance.HIGH,
            "POST, PUT or PATCH.",
            one_of("POST", "PUT", "PATCH"),
        ),
        Setting(
            "batch.size",
            Type.INT,
            1,
            Importance.MEDIUM,
            "The most records in a request; with 1 the body is a value as JSON, with more an array of them.",
            at_least(1),
        ),
        _HEADERS,
        *CONNECTION,
    )
    task_class = HttpSinkTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given for _ in range(tasks_max)]

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        if "${key}" in given["url"] and int(given.get("batch.size", "1")) > 1:
            return {"batch.size": ["batch.size: an address with ${key} takes one record at a time"]}
        return {}


class HttpSourceTask(SourceTask):
    def start(self, given: Config) -> None:
        self._config = HttpSource.settings.parse(given)
        self._caller = Caller(self._config["url"], self._config, self.context.wait)
        self._path = _path_of(self._config["url"])
        self._headers = {"Accept": "application/json", **_headers(self._config)}
        stored = self.context.offset(self._place) or {}
        self._offset = stored.get("offset", self._config["offset.initial"])
        self._digest = stored.get("digest")
        self._ask_at_s = 0.0

    @property
    def _place(self) -> dict[str, str]:
        return {"url": self._config["url"]}

    def poll(self) -> Sequence[SourceRecord]:
        if self.context.wait(max(0.0, self._ask_at_s - time.monotonic())):
            return ()
        self._ask_at_s = time.monotonic() + self._config["poll.interval.ms"] / 1000
        try:
            answer = self._caller.call(
                "GET", self._path.replace(_OFFSET, quote(str(self._offset), safe="")), None, self._headers
            )
        except RetriableError as error:
            _log.warning("%s; asking again, nothing is lost meanwhile", error)
            return ()
        if not answer.is_fine:
            raise ConnectError(f"{self._config['url']} answers {answer.shown}")
        asked = self._offset
        found = self._records(answer)
        if found and self._config["offset.field"] and asked == self._offset:
            raise ConnectError(
                f"{self._config['url']} gives records that are not behind "
                f"{self._config['offset.field']}={asked}, which would come again and again: url has to ask "
                "for those behind ${offset} alone, in order"
            )
        if found:
            # What comes next depends on where these end.
            self._ask_at_s = 0.0 if self._config["offset.field"] else self._ask_at_s
        return found

    def stop(self) -> None:
        self._caller.close()

    def _records(self, answer: Answer) -> list[SourceRecord]:
        field = self._config["offset.field"]
        if field is None:
            digest = hashlib.sha256(answer.body).hexdigest()
            if digest == self._digest:
                return []
            self._digest = digest
        try:
            found = json.loads(answer.body or b"[]")
        except (ValueError, RecursionError) as error:
            raise ConnectError(f"{self._config['url']} answers no JSON: {error}") from None
        for step in filter(None, self._config["records.path"].split(".")):
            found = found.get(step) if isinstance(found, dict) else None
        values = found if isinstance(found, list) else [] if found is None else [found]
        return [self._record(value, field) for value in values]

    def _record(self, value: Any, field: str | None) -> SourceRecord:
        if field is not None:
            if not isinstance(value, dict) or value.get(field) is None:
                raise ConnectError(
                    f"a record of {self._config['url']} has no {field}, which offset.field names"
                )
            self._offset = value[field]
        name = self._config["key.field"]
        key = value.get(name) if name is not None and isinstance(value, dict) else None
        return SourceRecord(
            topic=self._config["topic"],
            key_schema=STRING if key is not None else None,
            key=None if key is None else to_text(key),
            value=value,
            timestamp_ms=time.time_ns() // 1_000_000,
            source_partition=self._place,
            source_offset={"digest": self._digest} if field is None else {"offset": self._offset},
        )


class HttpSource(SourceConnector):
    guarantee: ClassVar[str] = (
        "With `offset.field` exactly once under `exactly.once.source.support`, else at least once: the value "
        "of the last record is stored and asked for, provided that the server gives what is behind it, in "
        "order. Without it an answer is written whenever it is another one than before; what was there "
        "between two polls is not seen."
    )
    settings: ClassVar[Settings] = Settings(
        Setting(
            "url",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "What is asked for, with ${offset} in its path or query, as http://host/orders?after=${offset}.",
            is_url,
        ),
        Setting("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", topic_name),
        Setting(
            "poll.interval.ms", Type.LONG, 10_000, Importance.HIGH, "How often it is asked for.", at_least(1)
        ),
        Setting(
            "records.path",
            Type.STRING,
            "",
            Importance.MEDIUM,
            "Where in the answer the records are, as data.items; else the answer is one or an array of them.",
        ),
        Setting(
            "offset.field",
            Type.STRING,
            None,
            Importance.HIGH,
            "The field of a record that says how far one is; it takes the place of ${offset}.",
        ),
        Setting("offset.initial", Type.STRING, "", Importance.MEDIUM, "What ${offset} is at first."),
        Setting("key.field", Type.STRING, None, Importance.MEDIUM, "The field of a record that is its key."),
        _HEADERS,
        *CONNECTION,
    )
    task_class = HttpSourceTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given]

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        if bool(given.get("offset.field")) != (_OFFSET in given["url"]):
            return {"offset.field": ["offset.field and ${offset} in url go together: give both or none"]}
        return {}

    def is_exactly_once(self, given: Config) -> bool:
        return bool(given.get("offset.field"))

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for partition, offset in offsets:
            if "url" not in partition or (offset is not None and not {"offset", "digest"} & offset.keys()):
                raise ConnectError("Partitions have the key 'url', offsets the key 'offset'")
