"""A queue with three workers, one of which is killed, and two subscribers. Ctrl-C ends it.

python demo.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from confluent_kafka import Consumer  # noqa: E402
from stage import Stage  # noqa: E402

TOPICS = {"jobs": 2, "jobs-done": 1, "jobs-dead": 1}
WORKERS = ("ann", "bob", "cleo")


class Board:
    """Who has done how many, and what nobody could do."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.done: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self.ended: set[str] = set()
        self.twice = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "board",
                "auto.offset.reset": "earliest",
                "log_level": 4,
            }
        )
        self._consumer.subscribe(["jobs-done", "jobs-dead"])

    def look(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for message in self._consumer.consume(1000, left):
                if message.error() is None:
                    self._count(message.topic(), json.loads(message.value()))

    def _count(self, topic: str, event: dict[str, str]) -> None:
        if event["place"] in self.ended:
            self.twice += 1
            return
        self.ended.add(event["place"])
        if topic == "jobs-dead":
            self.dead[event["why"]] += 1
        else:
            self.done[event["worker"]] += 1

    def close(self) -> None:
        self._consumer.close()

    def __str__(self) -> str:
        done = ", ".join(f"{worker} {self.done[worker]}" for worker in WORKERS)
        return f"done {self.done.total()} ({done}), dead {self.dead.total()}, {self.twice} twice"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--end", action="store_true", help="end when all jobs are")
    given = parser.parse_args()
    with Stage(TOPICS, HERE) as stage:
        submit = [sys.executable, "submit.py", "--many", str(given.jobs)]
        subprocess.run([*submit, "--bootstrap-server", stage.bootstrap_servers], cwd=HERE, check=True)
        workers = {name: stage.run("worker.py", "--name", name) for name in WORKERS}
        for name in ("billing", "search"):
            stage.run("subscriber.py", name)
        board = Board(stage.bootstrap_servers)
        try:
            while len(board.ended) < given.jobs:
                board.look(1.0)
                stage.raise_dead()
                print(board, flush=True)
                if workers and len(board.ended) > given.jobs // 4:
                    print("killing cleo: what she has goes to the others", flush=True)
                    stage.kill(workers["cleo"])
                    workers.clear()
            for why, count in board.dead.items():
                print(f"dead: {count} × {why}", flush=True)
            print(f"the broker is at {stage.bootstrap_servers}", flush=True)
            if not given.end:
                stage.stay()
        except KeyboardInterrupt:
            pass
        finally:
            board.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
