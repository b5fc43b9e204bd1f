"""Applications of Ottla that say how long the phases of their micro-batches took."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from ottla.streams import Materialized, StreamsBuilder, Topology
from ottla.streams.run import StreamsApplication, StreamsConfig

WRITER_LOG = "ottla.spark.exactly_once"


class WriterTimes(logging.Handler):
    """The writer's part of a micro-batch, from its log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.by_batch: dict[int, dict[str, float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and isinstance(record.args[-1], dict):
            self.by_batch[int(str(record.args[1]))] = dict(record.args[-1])


def topology(pipeline: str, source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream(source)
    if pipeline == "stateless":
        lines.map_values(str.upper).to(target)
    elif pipeline == "stateful":
        words = lines.flat_map_values(str.split).group_by(lambda _, word: word)
        words.count().to_stream().to(target)
    else:
        # Not Spark's own aggregation, but a function in tasks.
        words = lines.flat_map_values(str.split).group_by(lambda _, word: word)
        counts = words.aggregate(lambda: 0, lambda _, word, n: n + 1, Materialized.with_(str, int))
        counts.to_stream().to(target)
    return builder.build()


def main(
    bootstrap: str, source: str, target: str, state_dir: str, guarantee: str, pipeline: str, *settings: str
) -> None:
    times = WriterTimes()
    log = logging.getLogger(WRITER_LOG)
    log.setLevel(logging.DEBUG)
    log.addHandler(times)
    log.propagate = False
    config = StreamsConfig(
        application_id="latency",
        bootstrap_servers=bootstrap,
        state_dir=state_dir,
        processing_guarantee=guarantee,
        spark_settings=dict(each.split("=", 1) for each in settings),
    )
    application = StreamsApplication(topology(pipeline, source, target), config)
    application.start()
    last = -1
    while not application.wait(0.5):
        for report in application.queries[0].recentProgress:
            told: dict[str, Any] = json.loads(report.json)
            if told["batchId"] > last and told["numInputRows"]:
                last = told["batchId"]
                phases = {**told["durationMs"], **times.by_batch.pop(last, {})}
                line = {"time_s": time.time(), "rows": told["numInputRows"], "phases": phases}
                print(json.dumps(line), flush=True)


main(*sys.argv[1:])
