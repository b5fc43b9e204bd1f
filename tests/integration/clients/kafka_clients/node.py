"""The Node.js clients, each in an agent process that takes one JSON command a line and answers with one."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_clients.client import ANSWER_TIMEOUT_S, Message, Received, TooFewRecords, Unavailable, Where

FOLDER = Path(__file__).resolve().parents[2] / "node"


class NodeClient:
    sets_timestamps = True
    sends_tombstones = True

    def __init__(self, name: str, script: str, bootstrap_servers: str, *, has_header_map: bool) -> None:
        node = shutil.which("node")
        if node is None:
            raise Unavailable("node is not installed")
        if not (FOLDER / "node_modules").is_dir():
            raise Unavailable("the Node.js clients are not installed (npm ci in tests/integration/node)")
        self.name = name
        self.sends_null_headers = has_header_map
        self.repeats_headers = not has_header_map
        self._agent = subprocess.Popen(
            [node, str(FOLDER / script), bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=FOLDER,
            text=True,
        )
        try:
            self.codecs: tuple[str, ...] = tuple(self._call("codecs"))
        except BaseException:
            self.close()
            raise

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        self._call(
            "produce",
            topic=topic,
            messages=[_to_json(message) for message in messages],
            acks=-1 if acks == "all" else int(acks),
            compression=compression,
            idempotent=idempotent,
        )

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        answer = self._call(
            "read",
            topic=topic,
            partition=partition,
            offset=str(offset),
            count=count,
            timeoutMs=int(ANSWER_TIMEOUT_S * 1000),
        )
        received = [_received(partition, record) for record in answer]
        if len(received) < count:
            raise TooFewRecords(f"{len(received)} of {count} from {topic}-{partition}@{offset}")
        return received

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        timestamp = where.value if isinstance(where, Where) else where
        return int(self._call("offsetAt", topic=topic, partition=partition, timestamp=str(timestamp)))

    def close(self) -> None:
        self._agent.terminate()
        self._agent.wait()
        for pipe in (self._agent.stdin, self._agent.stdout):
            if pipe is not None:
                pipe.close()

    def _call(self, command: str, **arguments: object) -> Any:
        assert self._agent.stdin and self._agent.stdout
        self._agent.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._agent.stdin.flush()
        line = self._agent.stdout.readline()
        assert line, f"the {self.name} agent ended with {self._agent.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, f"{self.name}: {answer['error']}"
        return answer["result"]


def _to_json(message: Message) -> dict[str, object]:
    return {
        "key": _encoded(message.key),
        "value": _encoded(message.value),
        "headers": [(name, _encoded(value)) for name, value in message.headers],
        "timestamp": None if message.timestamp_ms is None else str(message.timestamp_ms),
        "partition": message.partition,
    }


def _received(partition: int, record: dict[str, Any]) -> Received:
    headers = tuple((name, _decoded(value)) for name, value in record["headers"])
    key, value = _decoded(record["key"]), _decoded(record["value"])
    return Received(partition, int(record["offset"]), key, value, headers, int(record["timestamp"]))


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
