"""Builds the nodes of a stream-stream join: two stores, two sides, and a merge of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.parameters import StreamJoined
from ottla.streams.operators.stateless import PassThrough
from ottla.streams.operators.stream_join import RememberForJoin, StreamJoinSide
from ottla.streams.state.spec import StoreKind, StoreSpec
from ottla.streams.windows import JoinWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.kstream import KStream


def join_streams(
    left_stream: KStream,
    right_stream: KStream,
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    joined: StreamJoined,
    *,
    left: bool,
    right: bool,
) -> KStream:
    from ottla.streams.dsl.kstream import KStream

    graph, name = left_stream.graph, joined.name
    this = left_stream.repartitioned_for(
        f"{name}-left" if name else left_stream.name, joined.key, joined.value
    )
    other = right_stream.repartitioned_for(
        f"{name}-right" if name else right_stream.name, joined.key, joined.other_value
    )
    sources = graph.require_copartitioning(this.sources, other.sources)
    key = joined.key or this.key_serde or graph.default_key
    left_value = joined.value or this.value_serde or graph.default_value
    right_value = joined.other_value or other.value_serde or graph.default_value

    this_suffix = "-outer-this-join" if right else "-this-join"
    other_suffix = "-outer-other-join" if left else "-other-join"
    this_window = graph.name(name, "KSTREAM-WINDOWED-", "-this-windowed")
    other_window = graph.name(name, "KSTREAM-WINDOWED-", "-other-windowed")
    this_generated = graph.generate("KSTREAM-OUTERTHIS-" if right else "KSTREAM-JOINTHIS-")
    other_generated = graph.generate("KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-")
    this_join = name + this_suffix if name else this_generated
    other_join = name + other_suffix if name else other_generated
    merge = graph.name(name, "KSTREAM-MERGE-", "-merge")

    base = joined.store_name
    this_store = f"{base}{this_suffix}-store" if base else f"{this_generated}-store"
    other_store = f"{base}{other_suffix}-store" if base else f"{other_generated}-store"
    size_ms, retention_ms = max(1, windows.size_ms), windows.retention_ms + 1
    this_spec = StoreSpec(this_store, StoreKind.WINDOW, key, left_value, size_ms, retention_ms, True)
    other_spec = StoreSpec(other_store, StoreKind.WINDOW, key, right_value, size_ms, retention_ms, True)
    pending: StoreSpec | None = None
    if left:
        shared = this_generated.replace("JOINTHIS", "OUTERSHARED").replace("OUTERTHIS", "OUTERSHARED")
        shared = f"{base}-outer-shared-join-store" if base else f"{shared}-store"
        pending = StoreSpec(shared, StoreKind.BUFFER, key, left_value)

    def side(is_left: bool) -> StreamJoinSide:
        return StreamJoinSide(
            is_left=is_left,
            other_store=other_store if is_left else this_store,
            pending_store=None if pending is None else pending.name,
            clock=merge,
            before_ms=windows.before_ms if is_left else windows.after_ms,
            after_ms=windows.after_ms if is_left else windows.before_ms,
            left_open_ms=windows.after_ms,
            right_open_ms=windows.before_ms,
            grace_ms=windows.grace_ms,
            outer=left if is_left else right,
            joiner=joiner,
            key=key,
            left_value=left_value,
            right_value=right_value,
        )

    extra = () if pending is None else (pending,)
    graph.add_processor(this_window, [this.name], RememberForJoin(this_store), owned=lambda: (this_spec,))
    graph.add_processor(other_window, [other.name], RememberForJoin(other_store), owned=lambda: (other_spec,))
    graph.add_processor(this_join, [this_window], side(True), owned=lambda: (other_spec, *extra))
    graph.add_processor(other_join, [other_window], side(False), owned=lambda: (this_spec, *extra))
    graph.add_processor(merge, [this_join, other_join], PassThrough())
    return KStream(graph, merge, key, None, sources)
