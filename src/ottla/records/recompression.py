"""Batches in the codec that their topic asks for, where a producer used another."""

from __future__ import annotations

from ottla.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    iter_headers,
)
from ottla.records.compression import (
    CODEC_MAX,
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
)
from ottla.records.crc import crc32c
from ottla.records.records import CHECKED
from ottla.runtime.disk import ReadableBuffer

KEEP = -1
"""Batches stay as their producer made them."""

# What takes no longer than handing it to another thread; of compressed records the size is not known.
_QUICK_BYTES_MAX = 16 * 1024
_QUICK_COMPRESSED_BYTES_MAX = 1024

CODECS = {"producer": KEEP, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


def is_slow(records: ReadableBuffer, codec: int) -> bool:
    """Whether some of these batches would take long to put into a codec."""
    return any(
        header.codec != codec
        and header.size > (_QUICK_COMPRESSED_BYTES_MAX if header.codec else _QUICK_BYTES_MAX)
        for _, header in iter_headers(records)
    )


def recompressed(
    records: ReadableBuffer,
    codec: int,
    level: int | None,
    batch_bytes_max: int,
    inflated_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> memoryview:
    """The same batches, all of them in this codec. Raises CorruptRecords.

    Raises InflatesTooFar where they are larger, all of them together, than `inflated_bytes_max`.
    From the first that cannot be accepted on, they are left as they are, for whoever refuses them.
    """
    view = memoryview(records)
    if all(header.codec == codec for _, header in iter_headers(view)):
        return view
    parts: list[ReadableBuffer] = []
    done = 0
    for at, header in iter_headers(view):
        stop = at + header.size
        if (
            header.size > batch_bytes_max
            or header.codec > CODEC_MAX
            or header.attributes & CONTROL
            or crc32c(view[at + ATTRIBUTES_AT : stop]) != header.crc
        ):
            break
        if header.codec == codec:
            parts.append(view[at:stop])
        else:
            body = decompress(header.codec, view[at + HEADER_BYTES : stop], max(inflated_bytes_max, 1))
            inflated_bytes_max -= len(body)
            data = compress(codec, body, level)
            fields = (header.attributes & ~CODEC_MASK | codec, *header[6:])
            crc = crc32c(data, crc32c(CHECKED.pack(*fields)))
            length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(data)
            parts.append(
                HEADER.pack(header.base_offset, length, header.leader_epoch, header.magic, crc, *fields)
            )
            parts.append(data)
        done = stop
    parts.append(view[done:])
    return memoryview(b"".join(parts))
