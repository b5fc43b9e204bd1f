"""Sends the lines of a host's log files to a topic, each exactly once, whatever is killed or rotated.

Lines, and how far each file was read, are written in one transaction: positions are in a compacted topic, by
host and file. An agent that starts reads them and goes on there. Of two agents for one host the later fences
the earlier, so that no line is sent by both.

A file is known by its inode and its first bytes, so it may be renamed. While the brokers are away the files
are the buffer: only what is deleted or emptied before it was read is lost.

    python agent.py --bootstrap-server localhost:9092 --directory /var/log/app --host web-1
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import threading
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

LINES, POSITIONS = "log-lines", "log-positions"
PACKED = (".gz", ".xz", ".zst")
MARK_BYTES = 256
READ_BYTES = 128 * 1024
"""Of one file in one transaction. A longer line comes in pieces, which fit into a record as JSON, too."""
TIMEOUT_S = 30.0
QUIET = {"enable.metrics.push": False, "log_level": 3}


@dataclass(frozen=True)
class Position:
    """How far a file was read."""

    file: str
    offset: int = 0
    mark: int = 0
    """Of its first bytes, as far as they were read: the inode of a deleted file is given to another."""

    def fits(self, begin: bytes, size: int) -> bool:
        return self.offset <= size and self.mark == zlib.crc32(begin[: self.offset])

    def after(self, lines: list[bytes], begin: bytes) -> Position:
        offset = self.offset + sum(map(len, lines))
        return Position(self.file, offset, zlib.crc32(begin[:offset]))


class Agent:
    def __init__(self, bootstrap_servers: str, host: str, directory: Path) -> None:
        self._host = host
        self._directory = directory
        self._producer = Producer(
            QUIET
            | {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"log-agent-{host}",
                # For so long at most what a dead agent has begun holds up those who read.
                "transaction.timeout.ms": 30_000,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
            }
        )
        # First of all: from here on nobody else writes positions of this host.
        self._producer.init_transactions(TIMEOUT_S)
        self._positions = read_positions(bootstrap_servers, host)
        self._files: dict[int, BinaryIO] = {}
        """Kept open, so that a file can be read to its end after it is deleted."""

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def step(self) -> int:
        """Sends lines that are new; how many."""
        present = self._look()
        news: dict[int, list[bytes]] = {}
        for inode, file in self._files.items():
            if lines := next_lines(file, self._positions[inode].offset, is_final=inode not in present):
                news[inode] = lines
        # Only what was seen to go is forgotten: what is missing at a start may be on a disk that is.
        ended = [inode for inode in self._files if inode not in present and inode not in news]
        if not (news or ended) or not self._send(news, ended):
            return 0
        for inode in ended:
            del self._positions[inode]
            self._files.pop(inode).close()
        return sum(map(len, news.values()))

    def _look(self) -> set[int]:
        """Opens files that have come, and gives the inodes of all that are there."""
        present = set()
        for path in sorted(self._directory.glob("*.log*")):
            if path.suffix in PACKED:
                continue
            try:
                file = path.open("rb")
            except FileNotFoundError:  # just renamed: the next look finds it
                continue
            status = os.fstat(file.fileno())
            inode = status.st_ino
            present.add(inode)
            position = self._positions.get(inode)
            if position is None or not position.fits(file.read(MARK_BYTES), status.st_size):
                self._positions[inode] = Position(path.name)
            else:
                self._positions[inode] = Position(path.name, position.offset, position.mark)
            if self._files.setdefault(inode, file) is not file:
                file.close()
        return present

    def _send(self, news: dict[int, list[bytes]], ended: list[int]) -> bool:
        """All of it, or False: then nothing of it happened."""
        after = {}
        self._producer.begin_transaction()
        try:
            for inode, lines in news.items():
                position = self._positions[inode]
                for line in lines:
                    self._produce(LINES, self._host, line.rstrip(b"\r\n"), {"file": position.file})
                after[inode] = position.after(lines, begin_of(self._files[inode]))
                self._produce(POSITIONS, f"{self._host}/{inode}", json.dumps(asdict(after[inode])).encode())
            for inode in ended:
                self._produce(POSITIONS, f"{self._host}/{inode}", None)
            self._commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"{self._host}: again, because of {error}", flush=True)
            self._producer.abort_transaction(TIMEOUT_S)
            return False
        self._positions |= after
        return True

    def _produce(
        self, topic: str, key: str, value: bytes | None, headers: dict[str, str] | None = None
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


def next_lines(file: BinaryIO, offset: int, *, is_final: bool) -> list[bytes]:
    """Whole lines, with their ends. The last of a file that nobody writes to any more is whole as it is."""
    file.seek(offset)
    chunk = file.read(READ_BYTES)
    whole = chunk.rfind(b"\n") + 1
    if whole == 0 and (is_final or len(chunk) == READ_BYTES):
        whole = len(chunk)
    return chunk[:whole].splitlines(keepends=True)


def begin_of(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(MARK_BYTES)


def read_positions(bootstrap_servers: str, host: str) -> dict[int, Position]:
    """By inode, as they are now."""
    admin = AdminClient(QUIET | {"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(POSITIONS, 1, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([topic])[POSITIONS].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    # The end is that of all records, and the reader gets there when open transactions of other agents have
    # ended. Up to where records are stable now would not do: positions of this host may lie behind them.
    partition = Partition(POSITIONS, 0)
    everything = admin.list_offsets(
        {partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
    )
    end = everything[partition].result(TIMEOUT_S).offset
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "log-agents",  # required by the client; nothing is committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    positions: dict[int, Position] = {}
    try:
        consumer.assign([Partition(POSITIONS, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(2 * TIMEOUT_S)
            if message is None:
                raise SystemExit(f"{POSITIONS} cannot be read: {bootstrap_servers} does not answer")
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if message.offset() >= end:
                    return positions
                continue
            owner, _, inode = message.key().decode().rpartition("/")
            if owner != host:
                continue
            if message.value() is None:
                positions.pop(int(inode), None)
            else:
                positions[int(inode)] = Position(**json.loads(message.value()))
    finally:
        consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument(
        "--directory", type=Path, required=True, help="of files *.log, rotated to *.log.1 and on"
    )
    parser.add_argument("--host", default=socket.gethostname())
    parser.add_argument("--interval", type=float, default=0.5, metavar="SECONDS")
    given = parser.parse_args()
    is_stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_stopping.set())
    try:
        agent = Agent(given.bootstrap_server, given.host, given.directory)
        while not is_stopping.is_set():
            if agent.step() == 0:
                is_stopping.wait(given.interval)
    except KafkaException as error:
        # Another agent has taken over, or the brokers were away for long. Start it again: nothing is lost.
        raise SystemExit(f"{given.host}: {error}") from None
    agent.close()


if __name__ == "__main__":
    main()
