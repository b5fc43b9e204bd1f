"""Word count with Bytewax; runs in an environment of its own."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

COMMIT_EVERY = timedelta(seconds=10)


def main(bootstrap: str, source: str, target: str, state_dir: str) -> None:
    def count(total: int | None, _: str) -> tuple[int, int]:
        total = (total or 0) + 1
        return total, total

    flow = Dataflow("word-count")
    lines = kafka.input("lines", flow, brokers=[bootstrap], topics=[source], batch_size=10_000)
    words = op.flat_map("words", lines.oks, lambda message: message.value.decode().lower().split(" "))
    keyed = op.key_on("key", words, lambda word: word)
    counts = op.stateful_map("count", keyed, count)
    messages = op.map(
        "messages", counts, lambda pair: KafkaSinkMessage(pair[0].encode(), str(pair[1]).encode())
    )
    kafka.output("counts", messages, brokers=[bootstrap], topic=target)

    os.makedirs(state_dir, exist_ok=True)
    init_db_dir(state_dir, 1)
    cli_main(
        flow,
        workers_per_process=os.cpu_count() or 1,
        epoch_interval=COMMIT_EVERY,
        recovery_config=RecoveryConfig(state_dir),
    )


main(*sys.argv[1:])
