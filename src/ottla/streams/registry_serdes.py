"""Serdes of a schema registry: records begin with the id of the schema that they were written with.

    registry = SchemaRegistry("http://localhost:8081")
    orders = registry.avro(ORDER_SCHEMA, topic="orders", kind=Order)

Confluent's clients do the work, and keep what they have learnt: a schema is asked for once per process. What
is here travels to Spark's workers, as clients cannot, and finds or makes its client there.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ottla.client.schema_registry import RegistryClientMissing, asking, registry_client
from ottla.streams.errors import SerdeError
from ottla.streams.serdes import Annotations, Serde, Serdes, annotations_of, convert

Strategy = Literal["TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"]
_STRATEGIES = {
    "TopicNameStrategy": "topic_subject_name_strategy",
    "RecordNameStrategy": "record_subject_name_strategy",
    "TopicRecordNameStrategy": "topic_record_subject_name_strategy",
}


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where a registry is, and how writers use it. Makes serdes: `avro`, `json_schema`, `protobuf`."""

    url: str
    auto_register: bool = True
    """Register what is written with, unless the registry has it; otherwise it has to be there."""
    use_latest_version: bool = False
    """Write with the newest schema of the subject rather than with the one that is given."""
    normalize: bool = False
    subject_name_strategy: Strategy = "TopicNameStrategy"
    """How the subject is called: after the topic, after the record's type, or after both."""
    properties: tuple[tuple[str, str], ...] = ()
    """More settings of confluent-kafka's client, such as ("basic.auth.user.info", "me:secret")."""

    def avro(
        self,
        schema: Mapping[str, Any] | str | None = None,
        *,
        topic: str,
        is_key: bool = False,
        kind: type | None = None,
        strict: bool = False,
    ) -> Serde:
        """Dictionaries, or instances of a dataclass. Without a schema all is read as it was written."""
        return self._serde("Avro", _text(schema), topic, is_key, kind, strict)

    def json_schema(
        self,
        schema: Mapping[str, Any] | str | None = None,
        *,
        topic: str,
        is_key: bool = False,
        kind: type | None = None,
        strict: bool = False,
    ) -> Serde:
        """Dictionaries, or instances of a dataclass, checked against their schema when read and written."""
        return self._serde("JSON", _text(schema), topic, is_key, kind, strict)

    def protobuf(self, message: type, *, topic: str, is_key: bool = False) -> Serde:
        """Messages of a class that protoc generated."""
        return self._serde("Protobuf", message, topic, is_key, None, False)

    def _serde(
        self,
        form: str,
        schema: str | type | None,
        topic: str,
        is_key: bool,
        kind: type | None,
        strict: bool,
    ) -> Serde:
        if self.subject_name_strategy not in _STRATEGIES:
            raise SerdeError(
                f"there is no {self.subject_name_strategy}; subject_name_strategy is one of "
                f"{', '.join(_STRATEGIES)}"
            )
        return _serde_of(_Format(self, form, schema, topic, is_key, kind, strict))


@dataclass(frozen=True, slots=True)
class _Format:
    registry: SchemaRegistry
    form: str
    schema: str | type | None
    topic: str
    is_key: bool
    kind: type | None
    strict: bool


@functools.cache
def _serde_of(given: _Format) -> Serde:
    """One serde for one format, since serdes are compared."""
    annotations = annotations_of(given.kind, given.strict)

    def write(value: Any) -> bytes:
        if given.schema is None:
            raise SerdeError(f"no schema was given to write {given.topic} with")
        plain = value if given.kind is None else _plain(value, given.form)
        with asking(given.registry.url):
            written: bytes = _writer(given)(plain)
        return written

    def read(data: bytes) -> Any:
        with asking(given.registry.url):
            value = _reader(given)(data)
        return value if given.kind is None else _typed(value, given.kind, annotations)

    part = "key" if given.is_key else "value"
    missing = "" if given.schema is not None else "a schema: make it with one, the first argument"
    name = f"{given.form} of {given.registry.url} for the {part} of {given.topic}"
    return Serde(name, write, read, missing=missing)


def _typed(value: Any, kind: type, annotations: Annotations) -> Any:
    return convert(value, kind, kind.__name__, annotations)


def _plain(value: Any, form: str) -> Any:
    if form == "JSON":
        # What JSON has no type for, such as a date, is text from here on, so that the schema can be checked.
        return json.loads(Serdes.json().writer(value))
    return dataclasses.asdict(value)


def _text(schema: Mapping[str, Any] | str | None) -> str | None:
    return json.dumps(schema) if isinstance(schema, Mapping) else schema


def _client(registry: SchemaRegistry) -> Any:
    try:
        return registry_client(registry.url, registry.properties)
    except RegistryClientMissing as error:
        raise SerdeError(str(error)) from error


@functools.cache
def _writer(given: _Format) -> Callable[[Any], bytes]:
    import confluent_kafka.schema_registry as strategies
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    registry = given.registry
    client = _client(registry)
    settings: dict[str, Any] = {
        "auto.register.schemas": registry.auto_register and not registry.use_latest_version,
        "use.latest.version": registry.use_latest_version,
        "normalize.schemas": registry.normalize,
        "subject.name.strategy": getattr(strategies, _STRATEGIES[registry.subject_name_strategy]),
    }
    if given.form == "Protobuf":
        serializer = ProtobufSerializer(given.schema, client, {**settings, "use.deprecated.format": False})
    elif given.form == "Avro":
        serializer = AvroSerializer(client, given.schema, conf=settings)
    else:
        serializer = JSONSerializer(given.schema, client, conf=settings)
    context = _context(given)
    return lambda value: serializer(value, context)


@functools.cache
def _reader(given: _Format) -> Callable[[bytes], Any]:
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    client = _client(given.registry)
    if given.form == "Protobuf":
        deserializer = ProtobufDeserializer(given.schema, {"use.deprecated.format": False}, client)
    elif given.form == "Avro":
        deserializer = AvroDeserializer(client, given.schema)
    else:
        deserializer = JSONDeserializer(given.schema, schema_registry_client=client)
    context = _context(given)
    return lambda data: deserializer(data, context)


def _context(given: _Format) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(given.topic, MessageField.KEY if given.is_key else MessageField.VALUE)
