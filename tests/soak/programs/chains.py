"""Every kind of query: one without state, one that Spark aggregates by itself, one in tasks.

A chain is the number of a key's values so far and a checksum over all of them, so a value that is lost, comes
twice or out of order is in every chain behind it.
"""

from __future__ import annotations

from zlib import crc32

from ottla.streams import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology

APPLICATION_ID = "chains"


def lengthened(value: str, chain: str) -> str:
    count, checksum = chain.split(":")
    return f"{int(count) + 1}:{crc32(value.encode(), int(checksum))}"


def build() -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed.with_(str, str))
    numbers.map_values(lambda value: f"{value}!").to("loud")
    by_digit = numbers.group_by(lambda key, value: value[-1], Grouped.as_("digits"))
    by_digit.count(Materialized.as_("digits")).to_stream().to("digits-out", Produced.with_(str, int))
    chains = numbers.group_by_key().aggregate(lambda: "0:0", lengthened, Materialized.as_("chains"))
    chains.to_stream().to("chains-out")
    return builder.build()
