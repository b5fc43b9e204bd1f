"""The small text files that a data directory keeps beside the logs, in Apache Kafka's formats."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.log.types import TopicPartition
from ottla.runtime.disk import Disk

log = logging.getLogger(__name__)

_VERSION = 0


class CorruptCheckpoint(ValueError):
    pass


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(entries), *entries)).encode()


def decode_lines(path: str, data: bytes, fields: int) -> list[list[str]]:
    """The entries of a checkpoint, split into words. An empty file has none."""
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if lines[0] != str(_VERSION):
        raise CorruptCheckpoint(f"{path}: version {lines[0]!r} is unknown, expected {_VERSION}")
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        raise CorruptCheckpoint(f"{path}: it does not have as many lines as its second line says")
    entries = [line.split() for line in lines[2:]]
    for line, entry in zip(lines[2:], entries, strict=True):
        if len(entry) != fields or not all(_is_integer(word) for word in entry[-2:]):
            raise CorruptCheckpoint(f"{path}: {line!r} is not an entry")
    return entries


def _is_integer(word: str) -> bool:
    return word.removeprefix("-").isdecimal()


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Topic, partition and offset per line. A file that is damaged counts as empty: that only costs time."""
    if not disk.exists(path):
        return {}
    try:
        entries = decode_lines(path, disk.read_file(path), 3)
    except CorruptCheckpoint as error:
        log.error("ignoring a damaged checkpoint, recovery will scan whole logs instead: %s", error)
        return {}
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    disk.replace_file(path, encode_lines(lines))


def encode_partition_metadata(topic_id: UUID) -> bytes:
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}".encode()


def read_partition_metadata(disk: Disk, path: str) -> UUID | None:
    """The topic id, or None where the file is missing or was never wholly written."""
    if not disk.exists(path):
        return None
    lines = disk.read_file(path).decode("utf-8", "replace").split("\n")
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    text = values.get("topic_id", "")
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        log.warning("%s holds no topic id", path)
        return None
