"""The Streams API after Kafka Streams, in Python and on Spark.

    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(lambda line: line.lower().split())
    counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
    counts.to_stream().to("word-counts")
    topology = builder.build()

``ottla.streams.testing.TopologyTestDriver`` runs it on lists of records; ``ottla run`` runs it on Spark.
"""

from __future__ import annotations

from ottla.streams.builder import StreamsBuilder
from ottla.streams.errors import RecordError, SerdeError, StoreError, StreamsError, TopologyError
from ottla.streams.failures import OnError
from ottla.streams.functions import expr
from ottla.streams.kstream import KStream
from ottla.streams.ktable import GlobalKTable, KTable
from ottla.streams.parameters import (
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
from ottla.streams.processor import Processor, ProcessorContext, PunctuationType, Stores
from ottla.streams.records import Record, Window, Windowed
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.topology import Topology
from ottla.streams.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "Branched",
    "BufferConfig",
    "Consumed",
    "EmitStrategy",
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
    "TimeWindows",
    "Topology",
    "TopologyError",
    "UnlimitedWindows",
    "Window",
    "Windowed",
    "expr",
]
