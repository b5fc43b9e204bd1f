"""Connect: sources and sinks as configuration, managed over Kafka Connect's REST API.

What one needs to write a connector:

    from ottla.connect import Importance, Setting, Settings, SourceConnector, SourceRecord, SourceTask, Type
"""

from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import (
    Connector,
    Converter,
    HeaderConverter,
    Predicate,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
    SparkSink,
    SparkSource,
    Transform,
)
from ottla.connect.records import Header, SinkRecord, SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type

__all__ = [
    "REQUIRED",
    "ConnectError",
    "Connector",
    "Converter",
    "DataError",
    "Header",
    "HeaderConverter",
    "Importance",
    "Predicate",
    "RetriableError",
    "Setting",
    "Settings",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SourceConnector",
    "SourceRecord",
    "SourceTask",
    "SparkSink",
    "SparkSource",
    "Transform",
    "Type",
]
