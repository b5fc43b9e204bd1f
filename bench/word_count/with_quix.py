"""Word count with Quix Streams; runs in an environment of its own."""

from __future__ import annotations

import sys

from quixstreams import Application


def main(bootstrap: str, source: str, target: str, state_dir: str) -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group="word-count",
        auto_offset_reset="earliest",
        state_dir=state_dir,
        loglevel="WARNING",
    )
    lines = application.topic(source, value_deserializer="str", key_deserializer="bytes")
    counts = application.topic(target, key_serializer="str", value_serializer="int")

    def count(_: str, state: object) -> int:
        total = state.get("count", 0) + 1
        state.set("count", total)
        return total

    words = application.dataframe(lines).apply(lambda line: line.lower().split(" "), expand=True)
    words = words.group_by(lambda word: word, name="word", key_serializer="str", key_deserializer="str")
    words.apply(count, stateful=True).to_topic(counts)
    application.run()


main(*sys.argv[1:])
