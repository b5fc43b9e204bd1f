"""An application on a cluster before and beside Spark: how far it is, what is purged, what a reset takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.cli.main import main
from ottla.client.cluster import EARLIEST
from ottla.client.errors import ClusterUnreachable
from ottla.spark.connection import Connection
from ottla.streams import Grouped, Materialized, Processor, Record, Stores, StreamsBuilder, StreamsError
from ottla.streams.application.lag import CatchUp, Reading, ends_of
from ottla.streams.application.manifest import (
    NAME,
    Generation,
    Manifest,
    StateDirectory,
    from_text,
    to_text,
)
from ottla.streams.application.purging import Purger
from ottla.streams.application.upgrade import Action
from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.testing import InProcessBroker

# What one test creates, others find.
pytestmark = pytest.mark.xdist_group("application-life")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def connection(bootstrap: str) -> Connection:
    return Connection(bootstrap, {})


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        created.result(30)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, str(n))
    assert producer.flush(30) == 0


def commit(bootstrap: str, group: str, topic: str, offset: int, metadata: str = "") -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    place = TopicPartition(topic, 0, offset, metadata) if metadata else TopicPartition(topic, 0, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_lag_is_that_of_all_hops(bootstrap: str, connection: Connection) -> None:
    create(bootstrap, "source", "between")
    fill(bootstrap, "source", 5)
    first = Reading("hops:source", frozenset({"source"}), frozenset({"source"}))
    second = Reading("hops:between", frozenset({"between"}), frozenset({"between"}))
    catch_up = CatchUp(connection, [first, second], frozenset({"between"}))
    assert catch_up.lag() == 5
    # What comes to a source later is for later; what comes to a topic between two queries is not.
    fill(bootstrap, "source", 2)
    fill(bootstrap, "between", 3)
    commit(bootstrap, "hops:source", "source", 5)
    assert catch_up.lag() == 3
    commit(bootstrap, "hops:between", "between", 3)
    assert catch_up.lag() == 0


def test_what_all_readers_have_read_is_deleted(bootstrap: str, connection: Connection) -> None:
    create(bootstrap, "app-x-repartition")
    fill(bootstrap, "app-x-repartition", 10)
    purger = Purger(connection, {"app-x-repartition": ["app:a", "app:b"]}, interval_s=0)
    place = ("app-x-repartition", 0)
    purger.purge({"app:a": {place: 7}})
    begin = connection.run(ends_of(connection.cluster, ["app-x-repartition"], EARLIEST))
    assert begin == {place: 0}, "the other reader has not begun"
    purger.purge({"app:a": {place: 7}, "app:b": {place: 4}})
    assert connection.run(ends_of(connection.cluster, ["app-x-repartition"], EARLIEST)) == {place: 4}


def counting(bootstrap: str, state_dir: Path, store: str | None = "counts") -> StreamsApplication:
    builder = StreamsBuilder()
    grouped = builder.stream("lines-in").group_by_key()
    grouped.count(Materialized.as_(store) if store else None).to_stream().to("out")
    return StreamsApplication(builder.build(), StreamsConfig("counting", bootstrap, state_dir=str(state_dir)))


def test_state_that_is_gone_is_told_before_spark_starts(bootstrap: str, tmp_path: Path) -> None:
    create(bootstrap, "lines-in")
    (decision,) = counting(bootstrap, tmp_path).prepare().decisions
    assert decision.action is Action.NEW
    commit(bootstrap, "counting:lines-in", "lines-in", 0, json.dumps({"query": "q", "batch": 3}))
    with pytest.raises(StreamsError, match="the changelog topic of the store counts was deleted"):
        counting(bootstrap, tmp_path).prepare().refuse()
    create(bootstrap, "counting-counts-changelog")
    (decision,) = counting(bootstrap, tmp_path).prepare().decisions
    assert (decision.action, decision.restored) == (Action.REBUILT, ("counts",))
    with pytest.raises(
        StreamsError, match="counting:lines-in: its checkpoint is gone, and the store KSTREAM-"
    ):
        counting(bootstrap, tmp_path, None).start()


def has_run(bootstrap: str, directory: Path, topic: str, offset: int | None) -> StreamsApplication:
    """An application that has counted a topic, with its checkpoint, and so far as its group says."""
    create(bootstrap, topic)
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count(Materialized.as_("n")).to_stream().to("out")
    app = StreamsApplication(
        builder.build(), StreamsConfig(f"a-{topic}", bootstrap, state_dir=str(directory))
    )
    state = StateDirectory(app.config.checkpoint_dir)
    shapes = app.prepare().shapes
    state.write(NAME, to_text({label: Generation(shape) for label, shape in shapes.items()}))
    for part in ("offsets", "commits"):
        place = Path(app.config.checkpoint_dir, topic, "0", part)
        place.mkdir(parents=True)
        (place / "0").touch()
    if offset is not None:
        mark = json.dumps({"query": "q", "batch": 0})
        commit(bootstrap, f"a-{topic}:{topic}", topic, offset, mark)
    return app


def test_a_checkpoint_is_gone_when_the_group_has_gone_further_without_it(
    bootstrap: str, tmp_path: Path
) -> None:
    app = has_run(bootstrap, tmp_path, "gone-in", 5)
    create(bootstrap, "a-gone-in-n-changelog")
    (decision,) = app.prepare().decisions
    assert decision.continues
    rmtree(Path(app.config.checkpoint_dir, "gone-in"))
    (decision,) = app.prepare().decisions
    assert (decision.action, decision.restored) == (Action.REBUILT, ("n",))
    # One that was about to begin there has nothing to lose.
    state = StateDirectory(app.config.checkpoint_dir)
    manifest = from_text(state.read(NAME) or "", NAME)
    begun = {label: replace(each, begin={("gone-in", 0): 5}) for label, each in manifest.items()}
    state.write(NAME, to_text(begun))
    (decision,) = app.prepare().decisions
    assert decision.continues


def test_a_changelog_that_was_deleted_is_remembered(
    bootstrap: str, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = has_run(bootstrap, tmp_path, "unlogged-in", 5)
    preparation = app.prepare()
    preparation.refuse()
    directory = StateDirectory(app.config.checkpoint_dir)
    manifest = preparation.generations(connection, directory, lambda stores, tasks: None)
    assert "the changelog of n was deleted" in caplog.text
    assert manifest["unlogged-in"].incomplete == ("n",)
    directory.write(NAME, to_text(manifest))
    # It is there again now, but does not have what was in the other one.
    create(bootstrap, "a-unlogged-in-n-changelog")
    assert app.prepare().decisions[0].continues
    rmtree(Path(app.config.checkpoint_dir, "unlogged-in"))
    with pytest.raises(StreamsError, match="the changelog topic of the store n was deleted"):
        app.prepare().refuse()


def test_offsets_that_have_expired_are_missed_before_anything_starts(bootstrap: str, tmp_path: Path) -> None:
    app = has_run(bootstrap, tmp_path, "expired-in", None)
    create(bootstrap, "a-expired-in-n-changelog")
    assert app.prepare().decisions[0].continues
    builder = StreamsBuilder()
    both = builder.stream("expired-in").merge(builder.stream("lines-in"))
    both.group_by_key().count(Materialized.as_("n")).to_stream().to("out")
    with pytest.raises(StreamsError, match="the group of expired-in has no offsets any more"):
        StreamsApplication(builder.build(), app.config).start()


def test_what_is_in_the_changelog_of_a_store_that_begins_empty_goes(
    bootstrap: str, connection: Connection, tmp_path: Path
) -> None:
    app = has_run(bootstrap, tmp_path, "emptied-in", 5)
    changelog = "a-emptied-in-n-changelog"
    create(bootstrap, changelog)
    fill(bootstrap, changelog, 3)
    builder = StreamsBuilder()
    last = builder.stream("emptied-in").group_by_key().reduce(max, Materialized.as_("n"))
    last.to_stream().to("out")
    changed = StreamsApplication(builder.build(), replace(app.config, upgrade="discard"))
    preparation = changed.prepare()
    assert preparation.decisions[0].emptied == ("n",)
    preparation.empty_changelogs(connection)
    assert not connection.run(connection.cluster.topics([changelog]))


def test_a_cluster_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.streams.run.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    app = counting("127.0.0.1:1", tmp_path)
    began = time.monotonic()
    with pytest.raises(ClusterUnreachable):
        app.start()
    assert time.monotonic() - began < 60


def test_a_reset_takes_all_topics_of_the_application_and_none_of_another(
    bootstrap: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = [
        "orders-names-changelog",
        "orders-names-repartition",
        "orders-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "orders-named-subscription-response-topic",
    ]
    foreign = ["orders-1-names-changelog", "orders-my-own-topic"]
    create(bootstrap, "orders", *own, *foreign)
    commit(bootstrap, "orders:orders", "orders", 0)
    commit(bootstrap, "orders-1:orders", "orders", 0)
    argv = ["streams-application-reset", "--application-id", "orders", "--json", "--input-topics", "orders"]
    argv += ["--bootstrap-server", bootstrap, "--state-dir", str(tmp_path), "--dry-run"]
    capfd.readouterr()
    assert main(argv) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["deletedTopics"] == sorted(own)
    assert list(told["offsets"]) == ["orders:orders"]


class Remembering(Processor):
    stores = (Stores.key_value_store("seen", str, str),)

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Handed:
    """Versions of a word count that have run one after the other, as far as cluster and directory tell."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.name = name

    def version(
        self, *, is_behind_state: bool, dead_letters: bool = False, copies: bool = False
    ) -> StreamsApplication:
        builder = StreamsBuilder()
        words = builder.stream("moved").map_values(str.upper)
        if copies:
            words.to("copied")
        if is_behind_state:
            words = words.process(Remembering)
        words.group_by(lambda key, word: word, Grouped.as_("n")).count(Materialized.as_("n"))
        letters = {"on_error": "dead-letter", "dead_letter_topic": "dead"} if dead_letters else {}
        return StreamsApplication(
            builder.build(),
            StreamsConfig(self.name, self.bootstrap, state_dir=str(self.directory), **letters),
        )

    def has_run(self, app: StreamsApplication, offsets: dict[tuple[str, str], int]) -> None:
        """`offsets` are those of groups, by label and topic."""
        state = StateDirectory(app.config.checkpoint_dir)
        text = state.read(NAME)
        manifest = {} if text is None else from_text(text, "")
        for label, shape in app.prepare().shapes.items():
            number = 0
            while Path(app.config.checkpoint_dir, label, str(number)).exists():
                number += 1
            manifest[label] = Generation(shape, number)
            for part in ("offsets", "commits"):
                place = Path(app.config.checkpoint_dir, label, str(number), part)
                place.mkdir(parents=True)
                (place / "0").touch()
        state.write(NAME, to_text(manifest))
        mark = json.dumps({"query": "q", "batch": 0})
        for (label, topic), offset in offsets.items():
            commit(self.bootstrap, f"{self.name}:{label}", topic, offset, mark)


def test_where_a_repartition_topic_comes_or_goes_nothing_is_read_twice(
    bootstrap: str, connection: Connection, tmp_path: Path
) -> None:
    create(bootstrap, "moved", "handed-n-changelog", "handed-seen-changelog", "handed-n-repartition")
    topic = "handed-n-repartition"
    handed = Handed(bootstrap, tmp_path, "handed")
    alone, behind = handed.version(is_behind_state=False), handed.version(is_behind_state=True)
    handed.has_run(alone, {("n-repartition", "moved"): 5})
    found = {each.label: each for each in behind.prepare().decisions}
    assert (found["moved"].action, found["n-repartition"].action) == (Action.NEW, Action.REBUILT)
    assert found["moved"].text == "begins where n-repartition has come to"
    assert behind.prepare().handed_on == {"moved": {("moved", 0): 5}}

    # Back again: what is between the two queries has to be worked off first.
    fill(bootstrap, topic, 3)
    handed.has_run(behind, {("moved", "moved"): 9, ("n-repartition", topic): 2})
    with pytest.raises(StreamsError, match=f"{topic} has 1 records that were not worked on"):
        alone.prepare().refuse()
    commit(bootstrap, "handed:n-repartition", topic, 3, json.dumps({"query": "q", "batch": 1}))
    preparation = alone.prepare()
    preparation.refuse()
    directory = StateDirectory(alone.config.checkpoint_dir)
    generation = preparation.generations(connection, directory, lambda stores, tasks: None)["n-repartition"]
    assert generation.begin == {("moved", 0): 9, (topic, 0): 3}

    # And forth: what the query in front had come to before it was taken out is long past.
    handed.has_run(alone, {("n-repartition", "moved"): 12})
    preparation = behind.prepare()
    assert preparation.handed_on == {"moved": {("moved", 0): 12}}
    (decision,) = (each for each in preparation.decisions if each.label == "moved")
    assert (decision.action, decision.emptied) == (Action.NEW, ("seen",))
    begin = preparation.generations(connection, directory, lambda stores, tasks: None)["moved"].begin
    assert begin == {("moved", 0): 12}


def test_a_query_that_has_work_of_its_own_must_have_come_as_far(bootstrap: str, tmp_path: Path) -> None:
    create(bootstrap, "as-far-n-changelog")
    handed = Handed(bootstrap, tmp_path, "as-far")
    before = handed.version(is_behind_state=False, copies=True)
    handed.has_run(before, {("moved", "moved"): 7, ("n-repartition", "moved"): 8})
    lettered = handed.version(is_behind_state=False, copies=True, dead_letters=True)
    with pytest.raises(
        StreamsError, match="n-repartition and moved have come to different offsets of what it"
    ):
        lettered.prepare().refuse()
    commit(bootstrap, "as-far:moved", "moved", 8, json.dumps({"query": "q", "batch": 1}))
    assert {each.label: each.action for each in lettered.prepare().decisions} == {
        "moved": Action.KEPT,
        "n-repartition": Action.REBUILT,
    }


def tables_of(bootstrap: str, directory: Path, *, are_joined: bool) -> StreamsApplication:
    """Two sub-topologies, or one."""
    builder = StreamsBuilder()
    tables = [
        builder.stream(f"{side}-in").group_by_key().reduce(max, Materialized.as_(f"{side}-most"))
        for side in ("left", "right")
    ]
    for table in tables:
        table.to_stream().to("most")
    if are_joined:
        tables[0].join(tables[1], lambda left, right: left + right).to_stream().to("both")
    return StreamsApplication(builder.build(), StreamsConfig("sides", bootstrap, state_dir=str(directory)))


def test_where_two_queries_become_one_and_part_again_nothing_is_read_twice(
    bootstrap: str, connection: Connection, tmp_path: Path
) -> None:
    create(bootstrap, "left-in", "right-in", "sides-left-most-changelog", "sides-right-most-changelog")
    left, right = ("left-in", 0), ("right-in", 0)
    handed = Handed(bootstrap, tmp_path, "sides")
    apart, joined = (tables_of(bootstrap, tmp_path, are_joined=each) for each in (False, True))

    def begun(app: StreamsApplication) -> Manifest:
        preparation = app.prepare()
        preparation.refuse()
        assert not any(decision.emptied for decision in preparation.decisions)
        state = StateDirectory(app.config.checkpoint_dir)
        manifest = preparation.generations(connection, state, lambda stores, tasks: None)
        # A start that is cut off here has lost nothing.
        state.write(NAME, to_text(manifest))
        assert all(decision.continues for decision in app.prepare().decisions)
        return manifest

    handed.has_run(apart, {("left-in", "left-in"): 5, ("right-in", "right-in"): 7})
    manifest = begun(joined)
    assert {label: each.begin for label, each in manifest.items()} == {"left-in": {left: 5, right: 7}}
    handed.has_run(joined, {("left-in", "left-in"): 9, ("left-in", "right-in"): 8})
    # Its own group still says 7.
    manifest = begun(apart)
    assert (manifest["left-in"].begin[left], manifest["right-in"].begin[right]) == (9, 8)
    handed.has_run(apart, {("left-in", "left-in"): 11, ("right-in", "right-in"): 10})
    assert begun(joined)["left-in"].begin == {left: 11, right: 10}
