"""kcat, the command line client, with an older librdkafka than confluent-kafka's."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from kafka_clients.client import (
    ANSWER_TIMEOUT_S,
    REQUEST_BYTES_MAX,
    Headers,
    Message,
    Received,
    TooFewRecords,
    Unavailable,
    Where,
)

# Lengths before contents, so that any byte may stand in a key or value.
RECORD_FORMAT = "%p %o %T %K %S %h\n%k%s\n"
NO_CONTENT = -1
KEY_END = "\x1f"


class KcatClient:
    name = "kcat"
    codecs = ("gzip", "snappy", "lz4", "zstd")
    sets_timestamps = False
    sends_null_headers = True
    repeats_headers = True
    sends_tombstones = True

    def __init__(self, bootstrap_servers: str) -> None:
        program = shutil.which("kcat") or shutil.which("kafkacat")
        if program is None:
            raise Unavailable("kcat is not installed (apt install kcat, brew install kcat)")
        self.program = program
        self._command = [program, "-b", bootstrap_servers]

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        for message in messages:
            assert message.timestamp_ms is None, "kcat cannot set timestamps"
            arguments = ["-P", "-t", topic, "-z", compression, "-X", f"acks={acks}"]
            arguments += ["-X", f"enable.idempotence={str(idempotent).lower()}"]
            arguments += ["-X", f"message.max.bytes={REQUEST_BYTES_MAX}"]
            arguments += ["-X", "topic.partitioner=murmur2_random"]
            if message.partition is not None:
                arguments += ["-p", str(message.partition)]
            for name, value in message.headers:
                arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
            if message.value:
                self._produce_file(message.key, message.value, arguments)
            else:
                self._produce_line(message.key, message.value, arguments)

    def _produce_file(self, key: bytes | None, value: bytes, arguments: list[str]) -> None:
        if key is not None:
            arguments += ["-k", key.decode()]
        with tempfile.NamedTemporaryFile() as file:
            file.write(value)
            file.flush()
            self._run(*arguments, file.name)

    def _produce_line(self, key: bytes | None, value: bytes | None, arguments: list[str]) -> None:
        """kcat skips an empty file, but not an empty line behind a key."""
        if value is None:
            arguments.append("-Z")
        self._run(*arguments, "-K", KEY_END, stdin=(key or b"") + KEY_END.encode() + b"\n")

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        arguments = ["-C", "-q", "-e", "-t", topic, "-p", str(partition), "-o", str(offset)]
        arguments += ["-c", str(count), "-f", RECORD_FORMAT, "-X", "check.crcs=true"]
        received = list(_parse(self._run(*arguments)))
        if len(received) < count:
            raise TooFewRecords(f"{len(received)} of {count} from {topic}-{partition}@{offset}")
        return received

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        timestamp = where.value if isinstance(where, Where) else where
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        found = re.search(r"offset (-?\d+)", answer)
        assert found, answer
        return int(found[1])

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = [*self._command, *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=ANSWER_TIMEOUT_S, check=False
        )
        assert not done.returncode, f"{' '.join(command)}: {done.stderr.decode(errors='replace')}"
        return done.stdout

    def close(self) -> None:
        pass


def _parse(output: bytes) -> list[Received]:
    received = []
    at = 0
    while at < len(output):
        line_end = output.index(b"\n", at)
        partition, offset, timestamp, key_length, value_length, headers = output[at:line_end].split(b" ", 5)
        at = line_end + 1
        key, at = _content(output, at, int(key_length))
        value, at = _content(output, at, int(value_length))
        received.append(
            Received(int(partition), int(offset), key, value, _headers(headers.decode()), int(timestamp))
        )
        at += 1
    return received


def _content(output: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    if length == NO_CONTENT:
        # A missing content still prints as a word where %k or %s stands.
        return None, at + len(b"NULL") if output[at : at + 4] == b"NULL" else at
    return output[at : at + length], at + length


def _headers(text: str) -> Headers:
    pairs = (item.partition("=") for item in text.split(",") if item)
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)
