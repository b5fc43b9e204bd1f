"""A broker, lines of text, the word count, and what it counts. Ctrl-C ends it.

python demo.py
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from confluent_kafka import Producer  # noqa: E402
from stage import Stage  # noqa: E402

from ottla.streams import TableView  # noqa: E402

TOPICS = {"lines": 2, "word-counts": 2}
TEXT = "the sea the sky the stars and the long way home over the sea"
LINES_PER_SECOND = 10
WORDS_PER_LINE = 20
SHOWN = 6


def main() -> int:
    with (
        Stage(TOPICS, HERE) as stage,
        TableView(stage.bootstrap_servers, "word-counts", key=str, value=int) as counts,
    ):
        port = stage.free_port()
        stage.run_pipeline("word_count.py", "--http", str(port))
        print(f"the broker is at {stage.bootstrap_servers}; lines are written, and Spark starts", flush=True)
        producer = Producer(
            {"bootstrap.servers": stage.bootstrap_servers, "enable.metrics.push": False, "log_level": 4}
        )
        words, produced, told = TEXT.split(), 0, False
        try:
            while True:
                for _ in range(LINES_PER_SECOND):
                    producer.produce("lines", " ".join(random.choices(words, k=WORDS_PER_LINE)))
                    produced += WORDS_PER_LINE
                    producer.poll(0)
                    time.sleep(1 / LINES_PER_SECOND)
                stage.look()
                found = {entry.key: entry.value for entry in counts.all()}
                top = sorted(found, key=lambda word: -found[word])[:SHOWN]
                if found:
                    shown = "  ".join(f"{word} {found[word]}" for word in top)
                    print(f"{produced} words written, {sum(found.values())} counted: {shown}", flush=True)
                if found and not told:
                    told = True
                    print(f"ask for one: curl http://localhost:{port}/tables/counts/sea", flush=True)
        except KeyboardInterrupt:
            print("ending …", flush=True)
            producer.flush(5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
