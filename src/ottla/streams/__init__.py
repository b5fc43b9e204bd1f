"""The Streams API after Kafka Streams, in Python and on Spark.

    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(lambda line: line.lower().split())
    counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
    counts.to_stream().to("word-counts")
    topology = builder.build()

``ottla.streams.testing.TopologyTestDriver`` runs it on lists of records; ``ottla run`` runs it on Spark.
"""

from __future__ import annotations

from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.ktable import GlobalKTable, KTable
from ottla.streams.dsl.parameters import (
    Branched,
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    Materialized,
    Produced,
    Repartitioned,
    StreamJoined,
    Suppressed,
    TableJoined,
)
from ottla.streams.dsl.topology_builder import TopologyBuilder
from ottla.streams.errors import RecordError, SerdeError, StoreError, StreamsError, TopologyError
from ottla.streams.expressions import expr
from ottla.streams.plan.topology import Topology
from ottla.streams.processor import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Stores,
    ValueTransformer,
)
from ottla.streams.queries.view import TableView
from ottla.streams.records import Record, Window, Windowed
from ottla.streams.registry_serdes import SchemaRegistry
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.tasks.failures import ErrorHandlers, ErrorKind, FailedRecord, OnError
from ottla.streams.windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)

__all__ = [
    "Branched",
    "BufferConfig",
    "Consumed",
    "EmitStrategy",
    "ErrorHandlers",
    "ErrorKind",
    "FailedRecord",
    "GlobalKTable",
    "Grouped",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "Materialized",
    "OnError",
    "Processor",
    "ProcessorContext",
    "Produced",
    "PunctuationType",
    "Record",
    "RecordError",
    "Repartitioned",
    "SchemaRegistry",
    "Serde",
    "SerdeError",
    "Serdes",
    "SessionWindows",
    "SlidingWindows",
    "StoreError",
    "Stores",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsError",
    "Suppressed",
    "TableJoined",
    "TableView",
    "TimeWindows",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "UnlimitedWindows",
    "ValueTransformer",
    "Window",
    "Windowed",
    "expr",
]
