"""MQTT: messages of topics of an MQTT server into a topic, and records out to it.

The source tells the server that it has a message when the record is in the topic, and has a session that the
server keeps: what is not acknowledged comes again after an outage of either side.
"""

from __future__ import annotations

import logging
import queue
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from ottla.connect.data import BYTES, STRING, plain
from ottla.connect.errors import ConnectError, DataError, RetriableError, SettingError
from ottla.connect.plugin import Config, SinkConnector, SinkTask, SourceConnector, SourceTask
from ottla.connect.records import Header, SinkRecord, SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, list_not_empty, not_empty, topic_name
from ottla.connect.text import to_text

_log = logging.getLogger(__name__)
_IDLE_S: Final = 0.2
_CONNECT_S: Final = 20.0
_RECONNECT_S_MAX: Final = 5
_UNSENT_MAX: Final = 1000
_ACKNOWLEDGED_LOOK_S: Final = 0.01
_PORTS: Final = {"mqtt": 1883, "tcp": 1883, "mqtts": 8883, "ssl": 8883}


def _is_server(name: str, value: Any) -> None:
    parts = urlsplit(value or "")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SettingError.of(name, value, "It must be an address such as mqtt://host:1883 or mqtts://host")


def _are_filters(name: str, value: Any) -> None:
    list_not_empty(name, value)
    for each in value:
        *levels, last = each.split("/")
        # Wildcards stand alone in their level, and # in the last one.
        if (
            not each
            or any("#" in level for level in levels)
            or any(len(level) > 1 and ("+" in level or "#" in level) for level in (*levels, last))
        ):
            raise SettingError.of(
                name,
                each,
                "+ stands for a whole level and # for all that follow, as in plant/+/state or plant/#",
            )


_CONNECTION: Final = Settings(
    Setting(
        "mqtt.server.uri",
        Type.STRING,
        REQUIRED,
        Importance.HIGH,
        "The server, as mqtt://host:1883, or mqtts://host:8883 for TLS.",
        _is_server,
    ),
    Setting("mqtt.username", Type.STRING, None, Importance.MEDIUM, "The user."),
    Setting("mqtt.password", Type.PASSWORD, None, Importance.MEDIUM, "The user's password."),
    Setting(
        "mqtt.client.id",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "By which the server knows the client again; else made of the connector's name.",
    ),
    Setting(
        "mqtt.qos", Type.INT, 1, Importance.HIGH, "0: messages may be lost; 1: they are not.", at_least(0, 1)
    ),
    Setting(
        "mqtt.keepalive.seconds",
        Type.INT,
        30,
        Importance.LOW,
        "How soon a connection that is dead is noticed.",
        at_least(1),
    ),
    Setting(
        "ssl.ca.location",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "A PEM file of the authorities that the server's certificate is checked with; else the system's.",
    ),
)


class _Client:
    """Connected from `start` on, and again after each outage, by a thread of its own."""

    def __init__(self, config: Mapping[str, Any], client_id: str, *, is_session_kept: bool) -> None:
        try:
            from paho.mqtt import client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise ConnectError("MQTT needs the package paho-mqtt: pip install 'ottla[mqtt]'") from None
        self._address = config["mqtt.server.uri"]
        parts = urlsplit(self._address)
        self.mqtt = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not is_session_kept,
            manual_ack=is_session_kept,
        )
        if config["mqtt.username"] is not None:
            self.mqtt.username_pw_set(config["mqtt.username"], config["mqtt.password"])
        if parts.scheme in {"mqtts", "ssl"}:
            self.mqtt.tls_set_context(ssl.create_default_context(cafile=config["ssl.ca.location"]))
        self.mqtt.reconnect_delay_set(1, _RECONNECT_S_MAX)
        self.mqtt.on_connect = self._connected
        self.mqtt.on_disconnect = self._disconnected
        self.on_connected: Any = lambda: None
        self._where = (
            parts.hostname or "",
            parts.port or _PORTS[parts.scheme],
            config["mqtt.keepalive.seconds"],
        )
        self._answered = threading.Event()
        self.refusal: str | None = None

    def start(self) -> None:
        """Raises ConnectError for a server that refuses this client, and waits for one that is away."""
        self.mqtt.connect_async(*self._where)
        self.mqtt.loop_start()
        self._answered.wait(_CONNECT_S)
        self.check()

    def check(self) -> None:
        if self.refusal is not None:
            raise ConnectError(f"{self._address} refuses this client: {self.refusal}; see mqtt.username")

    def stop(self) -> None:
        self.mqtt.disconnect()
        self.mqtt.loop_stop()

    def _connected(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.is_failure:
            self.refusal = str(reason)
        else:
            self.refusal = None
            self.on_connected()
        self._answered.set()

    def _disconnected(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.is_failure:
            _log.warning("%s is away: %s; trying again", self._address, reason)


class MqttSourceTask(SourceTask):
    def start(self, given: Config) -> None:
        self._config = MqttSource.settings.parse(given)
        self._topic = self._config["kafka.topic"]
        self._found: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._given: list[tuple[int, Any]] = []
        self._connection = 0
        client_id = self._config["mqtt.client.id"] or f"ottla-connect-{given['name']}"
        self._client = _Client(self._config, client_id, is_session_kept=True)
        self._client.mqtt.on_message = lambda _, __, message: self._found.put((self._connection, message))
        self._client.on_connected = self._subscribe
        self._client.start()

    def _subscribe(self) -> None:
        # What came over an earlier connection and was not acknowledged comes again.
        self._connection += 1
        qos = self._config["mqtt.qos"]
        self._client.mqtt.subscribe([(each, qos) for each in self._config["mqtt.topics"]])

    def poll(self) -> Sequence[SourceRecord]:
        self._client.check()
        records: list[SourceRecord] = []
        try:
            found = self._found.get(timeout=_IDLE_S)
            while True:
                connection, message = found
                if not message.qos or connection == self._connection:
                    records.append(self._record(message))
                    self._given.append(found)
                if len(records) >= self._config["batch.size"]:
                    break
                found = self._found.get_nowait()
        except queue.Empty:
            pass
        if records:
            # The server gives few messages before it waits for acknowledgements.
            self.context.commit_soon()
        return records

    def commit(self) -> None:
        for connection, message in self._given:
            if message.qos and connection == self._connection:
                self._client.mqtt.ack(message.mid, message.qos)
        self._given.clear()

    def stop(self) -> None:
        if hasattr(self, "_client"):
            self._client.stop()

    def _record(self, message: Any) -> SourceRecord:
        told = {
            "mqtt.message.id": message.mid,
            "mqtt.qos": message.qos,
            "mqtt.retained": message.retain,
            "mqtt.duplicate": message.dup,
        }
        return SourceRecord(
            topic=self._topic or message.topic.replace("/", "."),
            key_schema=STRING,
            key=message.topic,
            value_schema=BYTES,
            value=message.payload,
            timestamp_ms=time.time_ns() // 1_000_000,
            headers=tuple(Header(name, None, value) for name, value in told.items()),
        )


class MqttSource(SourceConnector):
    guarantee: ClassVar[str] = (
        "At least once with `mqtt.qos` 1: a message is acknowledged after its record is in the topic, and "
        "the server keeps the session and gives again what was not. A worker that dies in between leaves "
        "records that come twice. With 0 messages may be lost."
    )
    settings: ClassVar[Settings] = Settings(
        *_CONNECTION,
        Setting(
            "mqtt.topics",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "What to subscribe to, with + and # in it.",
            _are_filters,
        ),
        Setting(
            "kafka.topic",
            Type.STRING,
            None,
            Importance.HIGH,
            "The topic to write to; without one, that of the message with dots in place of slashes.",
            topic_name,
        ),
        Setting("batch.size", Type.INT, 1000, Importance.LOW, "The most messages at a time.", at_least(1)),
    )
    task_class = MqttSourceTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        """One: a session belongs to one client."""
        return [{**self.given, "name": self.given.get("name", "")}]


class MqttSinkTask(SinkTask):
    def start(self, given: Config) -> None:
        self._config = MqttSink.settings.parse(given)
        self._unsent: deque[Any] = deque()
        # Not `is_published`, which fails for what was given while the server was away and is sent later.
        self._acknowledged: set[int] = set()
        # Without an id the server makes one up; tasks of one connector have one each.
        self._client = _Client(self._config, self._config["mqtt.client.id"] or "", is_session_kept=False)
        if self._config["mqtt.qos"]:
            self._client.mqtt.on_publish = lambda _, __, number, *___: self._acknowledged.add(number)
        self._client.start()

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._client.check()
        if len(self._unsent) >= _UNSENT_MAX:
            # Before anything is added: after a RetriableError the same records come again.
            self.flush()
        is_acknowledged = self._config["mqtt.qos"] > 0
        if not is_acknowledged and not self._client.mqtt.is_connected():
            raise RetriableError(f"{self._config['mqtt.server.uri']} is away")
        for record in records:
            try:
                message = self._published(record)
            except DataError as error:
                self.context.report(record, error)
            else:
                if is_acknowledged:
                    self._unsent.append(message)

    def flush(self) -> None:
        deadline = time.monotonic() + self._config["flush.timeout.ms"] / 1000
        while self._unsent:
            message = self._unsent[0]
            while message.mid not in self._acknowledged:
                self._client.check()
                if time.monotonic() >= deadline:
                    raise RetriableError(
                        f"{self._config['mqtt.server.uri']} has not taken {len(self._unsent)} messages yet"
                    )
                self.context.wait(_ACKNOWLEDGED_LOOK_S)
            self._acknowledged.discard(message.mid)
            self._unsent.popleft()

    def stop(self) -> None:
        if hasattr(self, "_client"):
            self._client.stop()

    def _published(self, record: SinkRecord) -> Any:
        key = "" if record.key is None else to_text(plain(record.key))
        topic = self._config["mqtt.topic"].replace("${topic}", record.topic).replace("${key}", key)
        value = record.value
        payload = (
            value if isinstance(value, bytes) else b"" if value is None else to_text(plain(value)).encode()
        )
        try:
            return self._client.mqtt.publish(
                topic, payload, self._config["mqtt.qos"], self._config["mqtt.retain"]
            )
        except ValueError as error:
            raise DataError(f"{topic!r} cannot be a topic of MQTT: {error}") from None


class MqttSink(SinkConnector):
    guarantee: ClassVar[str] = (
        "At least once with `mqtt.qos` 1: offsets are committed after the server has acknowledged the "
        "messages, which are sent again after an outage. With 0 messages may be lost."
    )
    settings: ClassVar[Settings] = Settings(
        *_CONNECTION,
        Setting(
            "mqtt.topic",
            Type.STRING,
            "${topic}",
            Importance.HIGH,
            "Where messages go to, with ${topic} and ${key} in it.",
            not_empty,
        ),
        Setting(
            "mqtt.retain", Type.BOOLEAN, False, Importance.LOW, "Whether the server keeps the last message."
        ),
        Setting(
            "flush.timeout.ms",
            Type.LONG,
            10_000,
            Importance.LOW,
            "How long to wait for acknowledgements before other duties come first.",
            at_least(1),
        ),
    )
    task_class = MqttSinkTask

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given for _ in range(tasks_max)]
