"""Word count with Faust; runs in an environment of its own."""

from __future__ import annotations

import sys

import faust

bootstrap, source, target, state_dir = sys.argv[1:]
application = faust.App(
    "word-count", broker=f"kafka://{bootstrap}", datadir=state_dir, topic_partitions=4, web_enabled=False
)
lines = application.topic(source, value_type=bytes, value_serializer="raw")
words = application.topic("word-count-words", internal=True, partitions=4, key_type=str, value_type=str)
counts_topic = application.topic(target, key_type=bytes, value_type=bytes, value_serializer="raw")
counts = application.Table("counts", default=int, partitions=4)


@application.agent(lines)
async def split(stream: object) -> None:
    async for line in stream:
        for word in line.decode().lower().split(" "):
            await words.send(key=word, value=word)


@application.agent(words)
async def count(stream: object) -> None:
    async for word in stream:
        counts[word] += 1
        await counts_topic.send(key=word.encode(), value=str(counts[word]).encode())


sys.argv = [sys.argv[0], "worker", "-l", "warn"]
application.main()
