"""Hashes that Apache Kafka's own tests expect of murmur2, without their sign."""

from __future__ import annotations

import pytest

from ottla.records.key_partition import key_partition


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_goes_where_the_java_client_puts_it(key: bytes, hashed: int):
    assert key_partition(key, 1 << 31) == hashed & 0x7FFF_FFFF
    assert key_partition(key, 7) == (hashed & 0x7FFF_FFFF) % 7
