"""Stores against plain dictionaries and lists, with the bytes written out and read back at any moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.streams.topologies import relaxed

from ottla.streams import Serdes, Window, Windowed
from ottla.streams.state.backend import MemoryBackend
from ottla.streams.state.buffer import KeyedBuffer, TimeOrderedBuffer
from ottla.streams.state.entry_lists import decode_entries, encode_entries
from ottla.streams.state.session import SessionStore
from ottla.streams.state.time_index import TimeIndex
from ottla.streams.state.window import WindowStore

KEYS = st.sampled_from(["a", "b", "ab"])
TIMES = st.integers(0, 100)
FLUSH = st.just("flush")


@relaxed
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), st.one_of(st.none(), st.binary()))
    )
)
def test_pages_round_trip(entries: list[tuple[int, int, bytes | None]]) -> None:
    assert decode_entries(encode_entries(entries)) == entries


@relaxed
@given(
    st.lists(
        st.one_of(
            FLUSH,
            st.tuples(st.sampled_from(["add", "remove", "pop", "take one"]), TIMES, st.binary(max_size=2)),
        )
    )
)
def test_a_time_index_gives_members_in_order(steps: list[object]) -> None:
    backend = MemoryBackend()
    index = TimeIndex(backend)
    model: set[tuple[int, bytes]] = set()
    for step in steps:
        match step:
            case "flush":
                index = TimeIndex(backend)
            case ("add", int(time), bytes(member)):
                index.add(time, member)
                model.add((time, member))
            case ("remove", int(time), bytes(member)):
                index.remove(time, member)
                model.discard((time, member))
            case ("pop", int(time), _):
                due = sorted(each for each in model if each[0] < time)
                assert list(index.pop_before(time)) == due
                model -= set(due)
            case ("take one", int(time), _):
                # An error in the middle leaves the others where they are.
                popping = index.pop_before(time)
                first = next(popping, None)
                popping.close()  # type: ignore[attr-defined]
                assert first == min((each for each in model if each[0] < time), default=None)
                model -= {first} if first is not None else set()
        assert index.first() == min(model, default=None)
        assert list(index.members()) == sorted(model)
    if not model:
        assert not backend.entries, "an empty index leaves nothing behind"


@relaxed
@given(
    st.lists(st.one_of(FLUSH, st.tuples(KEYS, TIMES, st.one_of(st.none(), st.integers(0, 9))))), st.booleans()
)
def test_a_window_store(steps: list[object], duplicates: bool) -> None:
    backend = MemoryBackend()
    retention = 30

    def reopen() -> WindowStore:
        return WindowStore(
            "w",
            backend,
            Serdes.string(),
            Serdes.long(),
            size_ms=10,
            retention_ms=retention,
            retain_duplicates=duplicates,
        )

    store = reopen()
    model: list[tuple[str, int, int]] = []
    newest, has_expired = -1, False
    for step in steps:
        match step:
            case "flush":
                store.flush()
                store = reopen()
            case (str(key), int(start), value):
                store.put(key, value, start)
                if value is not None or not duplicates:
                    newest = max(newest, start)
                    if not duplicates:
                        model = [each for each in model if each[:2] != (key, start)]
                    if value is not None:
                        model.append((key, start, value))
        oldest = max(0, newest - retention + 1)
        has_expired |= any(each[1] < oldest for each in model)
        model = [each for each in model if each[1] >= oldest]
        assert store.entry_count() == len(model) or has_expired
        for key in ("a", "b", "ab"):
            expected = sorted(((s, v) for k, s, v in model if k == key), key=lambda each: each[0])
            assert [(s, found.value) for s, found in store.fetch_range(key, 0, 200)] == expected
            assert [(s, found.value) for s, found in store.fetch_range(key, 15, 42)] == [
                each for each in expected if 15 <= each[0] <= 42
            ]
        assert sorted((k.key, k.window.start_ms, v) for k, v in store.all()) == sorted(model)


@relaxed
@given(
    st.lists(
        st.one_of(FLUSH, st.tuples(KEYS, TIMES, st.integers(0, 5), st.one_of(st.none(), st.integers(0, 9))))
    )
)
def test_a_session_store(steps: list[object]) -> None:
    backend = MemoryBackend()

    def reopen() -> SessionStore:
        return SessionStore("s", backend, Serdes.string(), Serdes.long(), retention_ms=30)

    store = reopen()
    model: dict[Windowed, int] = {}
    newest, has_expired = -1, False
    for step in steps:
        match step:
            case "flush":
                store.flush()
                store = reopen()
            case (str(key), int(start), int(length), value):
                session = Windowed(key, Window(start, start + length))
                store.put(session, value)
                newest = max(newest, start + length)
                model.pop(session, None)
                if value is not None:
                    model[session] = value
        oldest = max(0, newest - 30 + 1)
        has_expired |= any(session.window.end_ms < oldest for session in model)
        model = {session: value for session, value in model.items() if session.window.end_ms >= oldest}
        assert store.entry_count() == len(model) or has_expired
        for key in ("a", "b", "ab"):
            expected = sorted((s.window, v) for s, v in model.items() if s.key == key)
            assert [(s.window, v) for s, v in store.fetch(key)] == expected
            assert [(s.window, v) for s, v in store.find_sessions(key, 20, 50)] == [
                each for each in expected if each[0].end_ms >= 20 and each[0].start_ms <= 50
            ]


@relaxed
@given(
    st.lists(st.one_of(FLUSH, st.tuples(st.sampled_from(["hold", "release"]), TIMES, st.binary(max_size=1))))
)
def test_a_keyed_buffer_keeps_the_first_time_and_the_last_entry(steps: list[object]) -> None:
    backend = MemoryBackend()
    buffer = KeyedBuffer("b", backend)
    model: dict[bytes, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        match step:
            case "flush":
                buffer.flush()
                buffer = KeyedBuffer("b", backend)
            case ("hold", int(time), bytes(member)):
                buffer.hold(time, member, (number, 0, b"xx"))
                model[member] = (model.get(member, (time, 0))[0], number)
            case ("release", int(time), _):
                due = sorted((since, member) for member, (since, _) in model.items() if since < time)
                expected = [(member, (model[member][1], 0, b"xx")) for _, member in due]
                assert list(buffer.release_before(time)) == expected
                for _, member in due:
                    del model[member]
        assert buffer.records == len(model)
        assert buffer.size_bytes == 2 * len(model)


def test_a_buffer_holds_several_entries_of_a_member_and_time() -> None:
    buffer = TimeOrderedBuffer("b", MemoryBackend())
    buffer.put(3, b"m", [(1, 0, b"x")])
    buffer.put(3, b"m", [*buffer.get(3, b"m"), (2, 0, b"y")])
    buffer.put(1, b"n", [(3, 0, None)])
    assert list(buffer.pop_before(4)) == [(1, b"n", [(3, 0, None)]), (3, b"m", [(1, 0, b"x"), (2, 0, b"y")])]
    assert buffer.first() is None
