"""Asks Apache Kafka's own Connect worker what `rest_requests.py` has, and keeps its answers.

python tests/integration/connect/kafka_rest_answers.py > tests/integration/connect/rest_answers.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]

from bench import connect_peer  # noqa: E402
from rest_requests import Ask, answers  # noqa: E402
from state_topics import state_records  # noqa: E402

from ottla.testing import InProcessBroker  # noqa: E402


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Raises PeerUnavailable."""
    (directory / "in.txt").write_text("one\ntwo\nthree\n")
    with InProcessBroker() as broker:
        kafka = connect_peer.fetch()
        with connect_peer.running(kafka, broker.bootstrap_servers, directory, heap=("-Xmx512M",)) as worker:
            told = [
                [ask.name.replace(str(directory), "/dir"), _kept(ask, answer)]
                for ask, answer in answers(worker.address, directory)
            ]
        return {"answers": told, "topics": state_records(broker.bootstrap_servers, directory)}


def _kept(ask: Ask, answer: dict[str, Any]) -> dict[str, Any]:
    """Where only the status is compared, the rest is Java's own."""
    return answer if ask.compare == "all" else {"status": answer["status"]}


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        json.dump(ask_kafka(Path(home)), sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
