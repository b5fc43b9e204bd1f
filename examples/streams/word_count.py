"""Word count, as in every Kafka tutorial: lines of text in, how often each word occurred out.

    kafka-topics --create --topic lines --partitions 2 --bootstrap-server localhost:9092
    kafka-topics --create --topic word-counts --partitions 2 --bootstrap-server localhost:9092
    ottla run word_count.py --bootstrap-server localhost:9092

    echo "hello streams hello" | kafka-console-producer --topic lines --bootstrap-server localhost:9092
    kafka-console-consumer --topic word-counts --from-beginning --formatter-property print.key=true \\
        --value-deserializer org.apache.kafka.common.serialization.LongDeserializer \\
        --bootstrap-server localhost:9092
"""

from __future__ import annotations

import re

from ottla.streams import Materialized, StreamsBuilder, Topology

APPLICATION_ID = "word-count"


def words(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


def build() -> Topology:
    builder = StreamsBuilder()
    counts = (
        builder.stream("lines")
        .flat_map_values(words)
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts"))
    )
    counts.to_stream().to("word-counts")
    return builder.build()
