from __future__ import annotations

import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, CorruptRecords, compress, decompress

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


@given(
    codec=st.integers(0, 4),
    data=st.binary(max_size=400),
    repeat=st.sampled_from([1, 10, 1000]),
    tail=st.binary(),
)
def test_data_survives_compression(codec: int, data: bytes, repeat: int, tail: bytes) -> None:
    plain = data * repeat + tail
    assert decompress(codec, compress(codec, plain)) == plain
    assert decompress(codec, memoryview(compress(codec, memoryview(plain)))) == plain


def test_snappy_is_written_in_java_blocks_and_read_raw_too() -> None:
    plain = b"abcdefgh" * 10_000
    framed = compress(SNAPPY, plain)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + length])) == plain[: 32 * 1024]
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain


def test_lz4_blocks_are_independent_and_without_checksums() -> None:
    plain = bytes(range(256)) * 1024
    frame = compress(LZ4, plain)
    assert frame[:7] == bytes.fromhex("04224d18604082")
    at, blocks = 7, []
    while (length := struct.unpack_from("<I", frame, at)[0]) != 0:
        at += 4
        assert not length & 0x8000_0000
        blocks.append(bytes(cramjam.lz4.decompress_block(frame[at : at + length], output_len=65536)))
        at += length
    assert at + 4 == len(frame)
    assert b"".join(blocks) == plain
    assert bytes(cramjam.lz4.decompress(frame)) == plain


def test_lz4_stores_what_does_not_shrink() -> None:
    plain = bytes(range(64))
    frame = compress(LZ4, plain)
    assert struct.unpack_from("<I", frame, 7)[0] == 64 | 0x8000_0000
    assert decompress(LZ4, frame) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_growth_is_bounded(codec: int) -> None:
    bomb = compress(codec, bytes(1 << 20))
    assert len(decompress(codec, bomb, bytes_max=1 << 20)) == 1 << 20
    with pytest.raises(CorruptRecords):
        decompress(codec, bomb, bytes_max=(1 << 20) - 4096)


@pytest.mark.parametrize("codec", CODECS)
def test_data_cut_short_is_corrupt(codec: int) -> None:
    data = compress(codec, b"hello world, hello world, hello world" * 100)
    with pytest.raises(CorruptRecords):
        decompress(codec, data[:-6])


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(ValueError, match="codec 5 is unknown"):
        compress(5, b"")
    with pytest.raises(CorruptRecords, match="codec 5 is unknown"):
        decompress(5, b"")


@given(st.binary(max_size=300) | st.binary(max_size=50).map(lambda part: part * 5000), st.integers(1, 17))
def test_lz4_of_every_level_is_read_and_has_independent_blocks(data: bytes, level: int) -> None:
    frame = compress(LZ4, data, level)
    assert decompress(LZ4, frame) == data
    # Version 1, blocks that do not depend on each other, no checksums: what Java reads.
    assert frame[4] == 0x60
    assert lz4.frame.decompress(frame) == data
