"""The four codecs of record batches, in the framings that Java and C clients write and read.

What needs care: Java writes snappy in xerial's block framing while librdkafka writes one raw block, so both
are read; and Java cannot read LZ4 frames whose blocks depend on each other, which is what most LZ4 libraries
write by default, so that frame is put together here from independent blocks.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Final

import cramjam

from ottla.runtime.disk import ReadableBuffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_MAX: Final = ZSTD
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# A few bytes of zstd can claim gigabytes; no honest batch of a few megabytes comes near this.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

_LEVELS: Final = {GZIP: 6, ZSTD: 3}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")

# Magic, version 1 with independent blocks, blocks of 64 KiB, and the descriptor's checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_END = bytes(4)
# As in Apache Kafka, the default is the fast compressor, and every other level the one that compresses more.
_LZ4_FAST_LEVEL = 9
_LZ4_CONTENT_SIZE = 0x08


# What cramjam says when the target is full, of every codec.
_TARGET_FULL = "failed to write whole buffer"


class CorruptRecords(ValueError):
    """The bytes of a batch do not hold the records that its header promises."""


class InflatesTooFar(CorruptRecords):
    """Compressed records are larger than whoever asked for them allows."""


def compress(codec: int, data: ReadableBuffer, level: int | None = None) -> bytes:
    """`level` is for gzip, lz4 and zstd; snappy has none."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            return bytes(cramjam.gzip.compress(data, level=_LEVELS[GZIP] if level is None else level))
        case 2:
            return _compress_snappy(data)
        case 3:
            return _compress_lz4(data, _LZ4_FAST_LEVEL if level is None else level)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=_LEVELS[ZSTD] if level is None else level))
        case _:
            raise ValueError(f"compression codec {codec} is unknown; codecs are 0 to {CODEC_MAX}")


def decompress(codec: int, data: ReadableBuffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Raises CorruptRecords when the data is damaged, InflatesTooFar when it would grow beyond `bytes_max`.

    Never more than that is written, however much was promised.
    """
    try:
        match codec:
            case 0:
                return bytes(data)
            case 1:
                return _decompress_bounded(cramjam.gzip.decompress_into, data, bytes_max)
            case 2:
                return _decompress_snappy(data, bytes_max)
            case 3:
                return _decompress_bounded(cramjam.lz4.decompress_into, data, bytes_max)
            case 4:
                return _decompress_bounded(cramjam.zstd.decompress_into, data, bytes_max)
            case _:
                raise CorruptRecords(f"compression codec {codec} is unknown; codecs are 0 to {CODEC_MAX}")
    except cramjam.DecompressionError as error:
        name = CODEC_NAMES[codec]
        if _TARGET_FULL in str(error):
            raise InflatesTooFar(
                f"{len(data)} bytes of {name} decompress to more than the {bytes_max} bytes allowed"
            ) from error
        raise CorruptRecords(f"{len(data)} bytes of {name} do not decompress: {error}") from error


def _decompress_bounded(
    decompress_into: Callable[[ReadableBuffer, mmap.mmap], int], data: ReadableBuffer, bytes_max: int
) -> bytes:
    # The size is not known beforehand. Anonymous memory is only taken page by page as it is written, so a
    # target of the greatest size allowed costs no more than the data needs.
    with mmap.mmap(-1, bytes_max) as target:
        return target[: decompress_into(data, target)]


def _compress_snappy(data: ReadableBuffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts.append(_XERIAL_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: ReadableBuffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, bytes_max)
    parts = []
    at, end = len(_XERIAL_HEADER), len(view)
    while at < end:
        if at + _XERIAL_LENGTH.size > end:
            raise CorruptRecords(f"snappy block at byte {at} of {end} is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(view, at)
        at += _XERIAL_LENGTH.size
        if length < 0 or at + length > end:
            raise CorruptRecords(f"snappy block at byte {at} of {end} claims {length} bytes")
        block = _decompress_snappy_block(view[at : at + length], bytes_max)
        bytes_max -= len(block)
        parts.append(block)
        at += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > bytes_max:
        raise InflatesTooFar(f"snappy block claims {length} bytes, more than the {bytes_max} allowed")
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_lz4(data: ReadableBuffer, level: int) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[at : at + _LZ4_BLOCK_BYTES]
        if level == _LZ4_FAST_LEVEL:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = _lz4_block(plain, level)
        if len(block) < len(plain):
            parts.append(_LZ4_LENGTH.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED))
            parts.append(bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_block(plain: memoryview, level: int) -> bytes:
    """One block, cut out of a frame of its own: only whole frames can be had with a level."""
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    at = len(_LZ4_HEADER) + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0)
    (length,) = _LZ4_LENGTH.unpack_from(frame, at)
    at += _LZ4_LENGTH.size
    # The first of a frame depends on no other. One that would grow is stored as it was.
    return frame[at : at + (length & ~_LZ4_STORED)]
