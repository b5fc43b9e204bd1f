"""Word count with Ottla's streams, exactly once; the functions split lines, Spark counts."""

from __future__ import annotations

import sys

from ottla.streams import StreamsBuilder
from ottla.streams.run import StreamsApplication, StreamsConfig


def main(bootstrap: str, source: str, target: str, state_dir: str) -> None:
    builder = StreamsBuilder()
    words = builder.stream(source).flat_map_values(lambda line: line.lower().split(" "))
    words.group_by(lambda _, word: word).count().to_stream().to(target)
    config = StreamsConfig(application_id="word-count", bootstrap_servers=bootstrap, state_dir=state_dir)
    application = StreamsApplication(builder.build(), config)
    application.start()
    application.wait()


main(*sys.argv[1:])
