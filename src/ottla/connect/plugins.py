"""All plugins by the names that configurations give them: Kafka's, short ones, and those of other packages.

Other packages announce theirs in the entry point group `ottla.connect`:

    [project.entry-points."ottla.connect"]
    MySource = "my_package.my_module:MySource"
"""

from __future__ import annotations

import enum
import importlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from ottla import __version__
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import (
    Connector,
    Converter,
    HeaderConverter,
    Plugin,
    Predicate,
    SinkConnector,
    SourceConnector,
    Transform,
)

GROUP: Final = "ottla.connect"
_HERE: Final = "ottla.connect"
_KAFKA: Final = "org.apache.kafka.connect"

_log = logging.getLogger(__name__)


class Kind(enum.Enum):
    """In the order in which REST lists them."""

    SINK = "sink"
    SOURCE = "source"
    TRANSFORM = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


_SUFFIXES: Final = {
    Kind.SINK: "Connector",
    Kind.SOURCE: "Connector",
    Kind.CONVERTER: "Converter",
    Kind.HEADER_CONVERTER: "HeaderConverter",
}


@dataclass(frozen=True, slots=True)
class Listed:
    kind: Kind
    name: str
    """What REST shows: the name of Kafka's class where it is one of Kafka's."""
    target: str
    """Where the class is, as module:name; loaded when it is needed."""
    version: str = __version__
    also: tuple[str, ...] = ()
    extra: str = ""
    """Of this package, which brings what the plugin needs."""

    @property
    def names(self) -> set[str]:
        simple = self.name.rpartition(".")[2].replace("$", ".")
        suffix = _SUFFIXES.get(self.kind, "")
        return {
            self.name,
            simple.replace(".", "$"),
            simple,
            simple.removesuffix(suffix) or simple,
            self.target.replace(":", "."),
            *self.also,
        }

    def load(self) -> type[Plugin]:
        module, _, attribute = self.target.partition(":")
        try:
            found: type[Plugin] = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            remedy = f": pip install 'ottla[{self.extra}]'" if self.extra else ""
            raise ConnectError(
                f"{self.name} needs the Python module {error.name}, which is missing where the worker "
                f"runs{remedy}"
            ) from error
        return found


def _own(kind: Kind, name: str, target: str, *also: str, extra: str = "") -> Listed:
    return Listed(kind, name, f"{_HERE}.{target}", also=also, extra=extra)


def _both(name: str, module: str) -> Iterator[Listed]:
    for part in ("Key", "Value"):
        yield _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.{name}${part}", f"transforms.{module}:{name}{part}")


def _converters() -> Iterator[Listed]:
    places = [
        ("converters.BooleanConverter", "simple"),
        ("converters.ByteArrayConverter", "simple"),
        ("converters.DoubleConverter", "simple"),
        ("converters.FloatConverter", "simple"),
        ("converters.IntegerConverter", "simple"),
        ("converters.LongConverter", "simple"),
        ("converters.ShortConverter", "simple"),
        ("json.JsonConverter", "json"),
        ("storage.StringConverter", "simple"),
    ]
    for kind in (Kind.CONVERTER, Kind.HEADER_CONVERTER):
        for name, module in places:
            yield _own(kind, f"{_KAFKA}.{name}", f"converters.{module}:{name.rpartition('.')[2]}")
    framed = {"avro.AvroConverter": "avro", "json.JsonSchemaConverter": "json-schema"}
    framed["protobuf.ProtobufConverter"] = "protobuf"
    for name, also in framed.items():
        target = f"converters.registry:{name.rpartition('.')[2]}"
        yield _own(Kind.CONVERTER, f"io.confluent.connect.{name}", target, also)
    simple = f"{_KAFKA}.storage.SimpleHeaderConverter"
    yield _own(Kind.HEADER_CONVERTER, simple, "converters.headers:SimpleHeaderConverter")


_BUILT_IN: Final = (
    _own(Kind.SINK, f"{_KAFKA}.file.FileStreamSinkConnector", "connectors.files:FileStreamSink", "FileSink"),
    _own(
        Kind.SOURCE,
        f"{_KAFKA}.file.FileStreamSourceConnector",
        "connectors.files:FileStreamSource",
        "FileSource",
    ),
    _own(
        Kind.SINK,
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connectors.jdbc.sink:JdbcSink",
    ),
    _own(
        Kind.SOURCE,
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connectors.jdbc.source:JdbcSource",
    ),
    _own(
        Kind.SOURCE,
        "io.debezium.connector.postgresql.PostgresConnector",
        "connectors.postgres.connector:PostgresSource",
        "PostgresSource",
        extra="postgres",
    ),
    _own(
        Kind.SOURCE,
        f"{_HERE}.connectors.datagen.Datagen",
        "connectors.datagen:Datagen",
        "DatagenSource",
        "datagen",
    ),
    _own(Kind.SINK, f"{_HERE}.connectors.lake.LakeSink", "connectors.lake:LakeSink", "lake"),
    _own(Kind.SINK, f"{_HERE}.connectors.http.HttpSink", "connectors.http:HttpSink", "http-sink"),
    _own(Kind.SOURCE, f"{_HERE}.connectors.http.HttpSource", "connectors.http:HttpSource", "http-source"),
    _own(Kind.SINK, f"{_HERE}.connectors.mqtt.MqttSink", "connectors.mqtt:MqttSink", "mqtt-sink"),
    _own(Kind.SOURCE, f"{_HERE}.connectors.mqtt.MqttSource", "connectors.mqtt:MqttSource", "mqtt-source"),
    _own(
        Kind.SINK,
        f"{_HERE}.connectors.search.SearchSink",
        "connectors.search:SearchSink",
        "ElasticsearchSink",
        "OpenSearchSink",
        "search",
    ),
    *_both("Cast", "cast"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.DropHeaders", "transforms.headers:DropHeaders"),
    *_both("ExtractField", "fields"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.Filter", "transforms.routing:Filter"),
    *_both("Flatten", "fields"),
    *_both("HeaderFrom", "headers"),
    *_both("HoistField", "fields"),
    *_both("InsertField", "fields"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.InsertHeader", "transforms.headers:InsertHeader"),
    *_both("MaskField", "fields"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.RegexRouter", "transforms.routing:RegexRouter"),
    *_both("ReplaceField", "fields"),
    *_both("SetSchemaMetadata", "fields"),
    *_both("TimestampConverter", "times"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.TimestampRouter", "transforms.times:TimestampRouter"),
    _own(Kind.TRANSFORM, f"{_KAFKA}.transforms.ValueToKey", "transforms.fields:ValueToKey"),
    *(
        _own(Kind.PREDICATE, f"{_KAFKA}.transforms.predicates.{name}", f"transforms.routing:{name}")
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    ),
    *_converters(),
)

_BASES: Final[tuple[tuple[Kind, type[Plugin]], ...]] = (
    (Kind.SINK, SinkConnector),
    (Kind.SOURCE, SourceConnector),
    (Kind.TRANSFORM, Transform),
    (Kind.PREDICATE, Predicate),
    (Kind.CONVERTER, Converter),
    (Kind.HEADER_CONVERTER, HeaderConverter),
)


class Plugins:
    def __init__(self, listed: Iterable[Listed]) -> None:
        self._listed = list(listed)

    def of(self, *kinds: Kind) -> list[Listed]:
        return [each for each in self._listed if each.kind in kinds]

    def find(self, name: str | None, *kinds: Kind) -> Listed | None:
        """By any of its names; among all kinds where none is given."""
        candidates = self.of(*kinds) if kinds else self._listed
        return next((each for each in candidates if name in each.names), None)

    def connector(self, name: str) -> type[Connector] | None:
        found = self.find(name, Kind.SOURCE, Kind.SINK)
        loaded = None if found is None else found.load()
        return loaded if loaded is None or issubclass(loaded, Connector) else None


@cache
def installed() -> Plugins:
    """Those of this package and of all others in the environment."""
    return Plugins([*_BUILT_IN, *_announced()])


def _announced() -> Iterator[Listed]:
    for point in entry_points(group=GROUP):
        try:
            loaded: Any = point.load()
        except Exception:
            _log.exception("the plugin %s (%s) is left out: it cannot be loaded", point.name, point.value)
            continue
        for kind, base in _BASES:
            if isinstance(loaded, type) and issubclass(loaded, base):
                version = getattr(loaded, "version", __version__)
                name = point.value.replace(":", ".")
                yield Listed(kind, name, point.value, version, also=(point.name,))
