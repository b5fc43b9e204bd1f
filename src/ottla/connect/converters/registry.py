"""Avro, JSON Schema and Protobuf with a schema registry: values begin with the id of their schema.

What Confluent's converters write is read here, and the other way round.
"""

from __future__ import annotations

import base64
import io
import json
from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar, Final

from ottla.client.schema_registry import (
    NotFramed,
    RegistryClientMissing,
    RegistryUnreachable,
    asking,
    framed,
    registry_client,
    unframed,
)
from ottla.connect.converters.avro_schemas import from_avro, from_datum, to_avro, to_datum
from ottla.connect.converters.common import CONVERTER_TYPE
from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.json_schemas import from_json_schema, to_json_schema
from ottla.connect.data import BOOLEAN, FLOAT64, INT64, NULL, STRING, Kind, Schema, SchemaAndValue
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import Config, Converter
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import list_not_empty, one_of

_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_INFERRED: Final = {bool: BOOLEAN, int: INT64, float: FLOAT64, str: STRING}


def _strategy(name: str, value: Any) -> None:
    one_of(*_STRATEGIES)(name, value.rpartition(".")[2])


class RegistryConverter(Converter):
    settings: ClassVar[Settings] = Settings(
        CONVERTER_TYPE,
        Setting(
            "schema.registry.url",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "The registry's address, or several with commas between them.",
            list_not_empty,
        ),
        Setting(
            "basic.auth.user.info",
            Type.PASSWORD,
            None,
            Importance.MEDIUM,
            "User and password, as user:password.",
        ),
        Setting(
            "basic.auth.credentials.source",
            Type.STRING,
            "URL",
            Importance.LOW,
            "USER_INFO for `basic.auth.user.info`; URL for what is in the address.",
        ),
        Setting(
            "schema.registry.ssl.ca.location", Type.STRING, None, Importance.LOW, "A PEM file of authorities."
        ),
        Setting(
            "auto.register.schemas",
            Type.BOOLEAN,
            True,
            Importance.MEDIUM,
            "Whether schemas that are written with are registered; else they have to be there.",
        ),
        Setting("normalize.schemas", Type.BOOLEAN, False, Importance.LOW, "Whether schemas are normalized."),
        *(
            Setting(
                f"{what}.subject.name.strategy",
                Type.STRING,
                _STRATEGIES[0],
                Importance.LOW,
                f"What the schema of {what}s is called after: {', '.join(_STRATEGIES)}.",
                _strategy,
            )
            for what in ("key", "value")
        ),
    )
    form: ClassVar[str]
    asked_form: ClassVar[str | None] = None
    """In which the registry is asked for schemas, where it has several."""

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._given = dict(given)
        properties = []
        if self.config["basic.auth.user.info"]:
            properties.append(("basic.auth.user.info", self.config["basic.auth.user.info"]))
        if self.config["schema.registry.ssl.ca.location"]:
            properties.append(("ssl.ca.location", self.config["schema.registry.ssl.ca.location"]))
        try:
            self._client = registry_client(",".join(self.config["schema.registry.url"]), tuple(properties))
        except RegistryClientMissing as error:
            raise ConnectError(str(error)) from None
        self._what = self.config["converter.type"]
        self._strategy = self.config[f"{self._what}.subject.name.strategy"].rpartition(".")[2]
        self._registered = lru_cache(maxsize=1000)(self._register)
        self._read_schema = lru_cache(maxsize=1000)(self._fetch)

    def __reduce__(self) -> tuple[type[RegistryConverter], tuple[dict[str, Any]]]:
        """To Spark's workers it goes as what it was made of."""
        return type(self), (self._given,)

    @abstractmethod
    def written_schema(self, schema: Schema) -> str:
        """As the registry takes it."""

    @abstractmethod
    def read_schema(self, text: str) -> tuple[Any, Schema]:
        """What `read` needs, and Connect's schema."""

    @abstractmethod
    def write(self, schema: Schema, value: Any) -> bytes: ...

    @abstractmethod
    def read(self, written: Any, schema: Schema, body: bytes) -> Any: ...

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        known = schema if schema is not None else _inferred(value)
        return framed(self._registered(topic, known), self.write(known, value))

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NULL
        schema_id, body = _unframed(data)
        written, schema = self._read_schema(topic, schema_id)
        return SchemaAndValue(schema, self.read(written, schema, body))

    def newest_schema(self, topic: str) -> Schema:
        """What a topic's values are by now. Raises DataError where nobody can say."""
        if self._strategy != _STRATEGIES[0]:
            raise DataError(f"with {self._strategy} a topic has no schema of its own")
        subject = f"{topic}-{self._what}"

        def ask() -> int:
            # The newest one itself is what the client would remember for ever.
            newest = max(self._client.get_versions(subject))
            return int(self._client.get_version(subject, newest).schema_id)

        return self._schema_of(topic, self._asked(ask, f"the schema of {subject}"))

    def _schema_of(self, topic: str, schema_id: int) -> Schema:
        return self._read_schema(topic, schema_id)[1]

    def _subject(self, topic: str, schema: Schema) -> str:
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{self._what}"
        name = schema.name or "io.confluent.connect.avro.ConnectDefault"
        return name if self._strategy == "RecordNameStrategy" else f"{topic}-{name}"

    def _register(self, topic: str, schema: Schema) -> int:
        from confluent_kafka.schema_registry import Schema as Registered

        subject = self._subject(topic, schema)
        registered = Registered(self.written_schema(schema), self.form)
        normalize = self.config["normalize.schemas"]

        def ask() -> int:
            if self.config["auto.register.schemas"]:
                return int(self._client.register_schema(subject, registered, normalize))
            return int(self._client.lookup_schema(subject, registered, normalize).schema_id)

        return int(self._asked(ask, f"the schema of {subject}"))

    def _fetch(self, topic: str, schema_id: int) -> tuple[Any, Schema]:
        found = self._asked(
            lambda: self._client.get_schema(schema_id, fmt=self.asked_form), f"the schema {schema_id}"
        )
        if (found.schema_type or "AVRO") != self.form:
            raise DataError(f"a record of {topic} is written in {found.schema_type}, not in {self.form}")
        return self.read_schema(found.schema_str)

    def _asked(self, question: Any, what: str) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        url = ",".join(self.config["schema.registry.url"])
        try:
            with asking(url):
                return question()
        except SchemaRegistryError as error:
            raise DataError(f"{url} refuses {what}: {error.error_message}") from None
        except (RegistryUnreachable, RuntimeError) as error:
            raise RetriableError(f"{url} cannot be asked for {what}: {error}") from None


def _unframed(data: bytes) -> tuple[int, bytes]:
    try:
        return unframed(data)
    except NotFramed as error:
        raise DataError(str(error)) from None


def _inferred(value: Any) -> Schema:
    """Of a value without a schema, whose type says all."""
    if isinstance(value, bytes):
        return Schema(Kind.BYTES, optional=True)
    found = _INFERRED.get(type(value))
    if found is None:
        raise DataError(
            f"a {type(value).__name__} without a schema cannot be written with a registry: the source has to "
            "give one, or use JsonConverter with schemas.enable=false"
        )
    return found.but(optional=True)


class AvroConverter(RegistryConverter):
    form = "AVRO"

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._parsed = lru_cache(maxsize=1000)(self._parse)

    def _parse(self, schema: Schema) -> Any:
        import fastavro

        return fastavro.parse_schema(to_avro(schema))

    def written_schema(self, schema: Schema) -> str:
        return json.dumps(to_avro(schema))

    def read_schema(self, text: str) -> tuple[Any, Schema]:
        import fastavro

        avro = json.loads(text)
        return fastavro.parse_schema(avro), from_avro(avro)

    def write(self, schema: Schema, value: Any) -> bytes:
        import fastavro

        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed(schema), to_datum(schema, value))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DataError(f"the value is not what its schema says: {error}") from error
        return out.getvalue()

    def read(self, written: Any, schema: Schema, body: bytes) -> Any:
        import fastavro

        try:
            datum: Any = fastavro.schemaless_reader(
                io.BytesIO(body), written, None, return_record_name=True, return_record_name_override=True
            )
        except Exception as error:
            raise DataError(
                f"the bytes are not what their schema says: {type(error).__name__}: {error}"
            ) from error
        return from_datum(schema, datum)


class JsonSchemaConverter(RegistryConverter):
    form = "JSON"
    settings: ClassVar[Settings] = Settings(
        *RegistryConverter.settings, JsonConverter.settings["decimal.format"]
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        plain = {"schemas.enable": "false", "decimal.format": self.config["decimal.format"]}
        self._json = JsonConverter({"converter.type": self._what, **plain})

    def written_schema(self, schema: Schema) -> str:
        return json.dumps(to_json_schema(schema))

    def read_schema(self, text: str) -> tuple[Any, Schema]:
        return None, from_json_schema(json.loads(text))

    def write(self, schema: Schema, value: Any) -> bytes:
        return self._json.to_bytes("", schema, value) or b"null"

    def read(self, written: Any, schema: Schema, body: bytes) -> Any:
        return self._json.read_as(schema, body)


class ProtobufConverter(RegistryConverter):
    """Before the message stand numbers that say which message of its file it is."""

    form = "PROTOBUF"
    asked_form = "serialized"

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._made = lru_cache(maxsize=1000)(self._make)
        self._found = lru_cache(maxsize=1000)(self._find)

    def _make(self, schema: Schema) -> Any:
        from ottla.connect.converters.proto_schemas import message_class, to_file

        return message_class(to_file(schema), [0])

    def _find(self, text: str, indexes: tuple[int, ...]) -> tuple[Any, Schema]:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        from ottla.connect.converters.proto_schemas import message_class, to_schema

        file = FileDescriptorProto.FromString(base64.b64decode(text))
        file.name = file.name or "default.proto"
        made = message_class(file, list(indexes))
        return made, to_schema(made.DESCRIPTOR)

    def written_schema(self, schema: Schema) -> str:
        from ottla.connect.converters.proto_schemas import to_file

        return base64.b64encode(to_file(schema).SerializeToString(deterministic=True)).decode()

    def read_schema(self, text: str) -> tuple[Any, Schema]:
        # Which message it is, and so the schema, stands before each value.
        return text, Schema(Kind.STRUCT)

    def _schema_of(self, topic: str, schema_id: int) -> Schema:
        # Of the file's first message, which in most is the only one.
        return self._found(self._read_schema(topic, schema_id)[0], (0,))[1]

    def write(self, schema: Schema, value: Any) -> bytes:
        from ottla.connect.converters.proto_schemas import fill_message

        message = self._made(schema)()
        try:
            fill_message(message, schema, value)
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the value is not what its schema says: {error}") from error
        return b"\0" + bytes(message.SerializeToString())

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NULL
        schema_id, body = _unframed(data)
        text, _ = self._read_schema(topic, schema_id)
        indexes, start = _message_indexes(body)
        made, schema = self._found(text, indexes)
        return SchemaAndValue(schema, self.read(made, schema, body[start:]))

    def read(self, written: Any, schema: Schema, body: bytes) -> Any:
        from google.protobuf.message import DecodeError

        from ottla.connect.converters.proto_schemas import from_message

        try:
            message = written.FromString(body)
        except DecodeError as error:
            raise DataError(f"the bytes are not what their schema says: {error}") from error
        return from_message(message, schema)


def _message_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Numbers in zigzag, how many there are first; and where the message begins."""
    numbers: list[int] = []
    at, value, shift = 0, 0, 0
    while not numbers or len(numbers) <= numbers[0]:
        if at >= len(body):
            raise DataError("the record ends before it says which message it is")
        value |= (body[at] & 0x7F) << shift
        shift += 7
        if not body[at] & 0x80:
            numbers.append((value >> 1) ^ -(value & 1))
            value = shift = 0
        at += 1
    return tuple(numbers[1:]) or (0,), at
