"""Clients that go on while brokers come and go, and what must be true of what they wrote and read.

Writers send numbers to one partition each. Readers are a group that reads them. Copiers are a group, too, and
copy them to another topic, each batch with its offsets in one transaction. Transactors write the same number
to every partition of a third topic, some of it to be aborted.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS = 3
WRITTEN, COPIED, WHOLE = "written", "copied", "whole"
TOPICS = (WRITTEN, COPIED, WHOLE)
WAIT_S = 60.0
ABORTED_EVERY = 5
GROUP_SESSION_MS = 6000
HUNG_S = 30.0
"""Whoever takes so long for one transaction is taken for hung."""
QUIET = {"log_level": 0, "socket.timeout.ms": 5000}


def create_topics(servers: str, names: Iterable[str] = TOPICS, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    for made in admin.create_topics([NewTopic(name, partitions, 3) for name in names]).values():
        made.result(WAIT_S)


class Client(threading.Thread):
    """Runs until it is told to stop, or fails."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.servers = servers
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.advanced: list[float] = []
        """When something was acknowledged, by `time.monotonic`."""

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self.join(WAIT_S + 20)

    def check_alive(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure

    def check_ended(self) -> None:
        self.check_alive()
        assert not self.is_alive(), f"{self.name} came to no end"

    def longest_gap(self, since: float) -> float:
        """Seconds without an acknowledgement, from the last one before `since` on."""
        moments = list(self.advanced)
        first = next((at for at in range(len(moments) - 1, -1, -1) if moments[at] < since), 0)
        seen = [*moments[first:], time.monotonic()]
        return max((after - before for before, after in pairwise(seen)), default=0.0)


class Writer(Client):
    """Numbers to one partition, idempotent, acknowledged by all in sync, a few at a time."""

    def __init__(self, servers: str, partition: int, topic: str = WRITTEN) -> None:
        super().__init__(servers, f"writer of {topic}-{partition}")
        self.topic, self.partition = topic, partition
        self.acknowledged: list[int] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(WAIT_S * 1000),
                "request.timeout.ms": 5000,
                **QUIET,
            }
        )

    def work(self) -> None:
        number = 0
        while not self.stopping.is_set() and self.failure is None:
            for _ in range(5):
                self._producer.produce(
                    self.topic, str(number), partition=self.partition, on_delivery=self._delivered
                )
                number += 1
            self._producer.flush(WAIT_S + 10)
            self.stopping.wait(0.02)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(value_of(message)))
            self.advanced.append(time.monotonic())
        else:
            self.failure = KafkaException(error)

    def check(self) -> list[int]:
        """What the partition has: all that was acknowledged, in order, once."""
        found = [int(value) for value in read_all(self.servers, self.topic, self.partition)]
        check_numbers(f"{self.topic}-{self.partition}", self.acknowledged, found)
        return found


def check_numbers(where: str, acknowledged: Iterable[int], found: list[int]) -> None:
    lost = sorted(set(acknowledged) - set(found))
    assert not lost, f"{len(lost)} acknowledged records of {where} are lost: {lost[:10]}"
    twice = [number for number, count in Counter(found).items() if count > 1]
    assert not twice, f"{where} has {len(twice)} records twice: {twice[:10]}"
    assert found == sorted(found), f"records of {where} are out of order"


class Transactional(Client):
    """A transactional producer that carries on after errors as applications are told to."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers, name)
        self._producer: Producer | None = None
        self.fatal: list[str] = []
        """Errors that no application could do anything about but begin anew."""

    def work(self) -> None:
        while not self.stopping.is_set():
            if self._producer is None:
                self._producer = self._begun()
            try:
                self.one(self._producer)
            except KafkaException as error:
                self._recover(error)
        self.close()

    def _begun(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 20_000,
                "request.timeout.ms": 5000,
                **QUIET,
            }
        )
        self._until_done(lambda: producer.init_transactions(WAIT_S))
        return producer

    def one(self, producer: Producer) -> None:
        """One transaction, or none."""
        raise NotImplementedError

    def was_aborted(self) -> None:
        """The transaction that failed has left nothing."""
        raise NotImplementedError

    def was_lost(self) -> None:
        """Nobody knows how the transaction ended."""
        raise NotImplementedError

    def close(self) -> None:
        """After the last transaction."""

    def commit(self, producer: Producer) -> None:
        self._until_done(lambda: producer.commit_transaction(WAIT_S))
        self.advanced.append(time.monotonic())

    def abort(self, producer: Producer) -> None:
        self._until_done(lambda: producer.abort_transaction(WAIT_S))

    def _until_done(self, step: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _recover(self, error: KafkaException) -> None:
        assert self._producer is not None
        try:
            if error.args[0].fatal():
                raise error
            self.abort(self._producer)
            self.was_aborted()
        except KafkaException:
            # What an application does about a fatal error: a producer in place of this one.
            self._producer = None
            self.fatal.append(f"{self.name} at {time.strftime('%H:%M:%S')}: {error}")
            assert len(self.fatal) < 1000, f"{self.name} cannot write: {error}"
            self.was_lost()


class Transactor(Transactional):
    """One number to all partitions, or to none."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers, name)
        self.number = -1
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.undecided: set[int] = set()

    def one(self, producer: Producer) -> None:
        self.number += 1
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(WHOLE, f"{self.name} {self.number}", partition=partition)
        if self.number % ABORTED_EVERY == 0:
            # Whoever aborts before the coordinator knows of the transaction may hear that there is none.
            producer.flush(WAIT_S)
            self.abort(producer)
            self.aborted.add(self.number)
        else:
            self.commit(producer)
            self.committed.add(self.number)
        self.stopping.wait(0.02)

    def was_aborted(self) -> None:
        self.aborted.add(self.number)

    def was_lost(self) -> None:
        self.undecided.add(self.number)

    def check(self, found: dict[int, list[str]]) -> None:
        """`found`: what was committed to each partition."""
        mine = {
            partition: [int(value.split()[1]) for value in values if value.split()[0] == self.name]
            for partition, values in found.items()
        }
        for partition, numbers in mine.items():
            check_numbers(f"{WHOLE}-{partition} of {self.name}", self.committed, numbers)
            dirty = sorted(self.aborted & set(numbers))
            assert not dirty, f"{WHOLE}-{partition} shows aborted transactions of {self.name}: {dirty[:10]}"
        for number in sorted(self.undecided):
            places = [partition for partition, numbers in mine.items() if number in numbers]
            assert len(places) in (0, PARTITIONS), f"transaction {number} of {self.name} is torn: {places}"


class CopierProcess:
    """A copier in a process of its own, which is replaced when it hangs, as an orchestrator would do.

    librdkafka may wait forever for a coordinator that was missing in the metadata for a moment, whatever the
    time-out, and with it the whole interpreter. Its successor has the same transactional id, so that whatever
    the first one still does must count for nothing.
    """

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.replaced = 0
        self._servers = servers
        self._process: subprocess.Popen[str] | None = None
        self._said_at = 0.0
        self.advanced: list[float] = []

    def start(self) -> None:
        module = "tests.integration.cluster.copier"
        self._said_at = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, self._servers, self.name],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said_at = time.monotonic()
            if line == "copied\n":
                self.advanced.append(self._said_at)

    def check_alive(self) -> None:
        assert self._process is not None
        status = self._process.poll()
        assert status is None, f"{self.name} ended with status {status}"
        if time.monotonic() - self._said_at > HUNG_S:
            self.replaced += 1
            self.stop()
            self.start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Reader(Client):
    """A member of a group that commits from time to time."""

    def __init__(self, servers: str, name: str, protocol: str = "classic") -> None:
        super().__init__(servers, name)
        self.seen: dict[int, set[int]] = defaultdict(set)
        """Offsets by partition."""
        self._positions: dict[int, int] = {}
        session = {} if protocol == "consumer" else {"session.timeout.ms": GROUP_SESSION_MS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"readers-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                **session,
                **QUIET,
            }
        )

    def work(self) -> None:
        self._consumer.subscribe([WRITTEN], on_assign=self._assigned)
        while not self.stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    partition, offset = place_of(message)
                    last = self._positions.get(partition, -1)
                    assert offset == last + 1 or last < 0, (
                        f"{self.name} was given offset {offset} of partition {partition} after {last}"
                    )
                    self._positions[partition] = offset
                    self.seen[partition].add(offset)
                    self.advanced.append(time.monotonic())
        self._consumer.close()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place.partition, None)


class Workload:
    """All of them at once."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.writers = [Writer(servers, partition) for partition in range(PARTITIONS)]
        self.transactors = [Transactor(servers, f"transactor-{number}") for number in (1, 2)]
        self.copiers = [CopierProcess(servers, f"copier-{number}") for number in (1, 2)]
        self.readers = [
            Reader(servers, f"reader-{protocol}-{number}", protocol)
            for protocol in ("classic", "consumer")
            for number in (1, 2)
        ]

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.transactors, *self.readers]

    def start(self) -> None:
        for client in (*self.clients, *self.copiers):
            client.start()

    def wait_begun(self) -> None:
        """Until each kind of client has got something done."""
        kinds = (self.writers, self.transactors, self.copiers, self.readers)
        deadline = time.monotonic() + WAIT_S
        while not all(any(client.advanced for client in kind) for kind in kinds):
            self.check_alive()
            assert time.monotonic() < deadline, f"nothing done yet: {self._idle()}"
            time.sleep(0.05)

    def wait_going_on(self) -> None:
        """Until each writer and transactor has got something done from now on."""
        began = time.monotonic()
        for client in (*self.writers, *self.transactors):
            while not client.advanced or client.advanced[-1] < began:
                self.check_alive()
                assert time.monotonic() < began + WAIT_S, f"{client.name} does not go on"
                time.sleep(0.02)

    def _idle(self) -> list[str]:
        return [client.name for client in (*self.clients, *self.copiers) if not client.advanced]

    def check_alive(self) -> None:
        for client in self.clients:
            client.check_alive()
        for copier in self.copiers:
            copier.check_alive()

    def stop(self) -> None:
        for client in self.clients:
            client.stopping.set()
        for client in (*self.clients, *self.copiers):
            client.stop()

    def finish(self) -> str:
        """Stop the writers, let the others come to the end, check all, and say what there was of each."""
        for source in (*self.writers, *self.transactors):
            source.stop()
            source.check_ended()
        written = {writer.partition: writer.check() for writer in self.writers}
        self._wait_read({partition: len(numbers) for partition, numbers in written.items()})
        self._wait_copied(written)
        self.stop()
        for client in (*self.transactors, *self.readers):
            client.check_ended()
        for partition, numbers in written.items():
            copies = [int(value) for value in read_all(self.servers, COPIED, partition, committed=True)]
            assert copies == numbers, f"{COPIED}-{partition} is not {WRITTEN}-{partition}"
        whole = {
            partition: read_all(self.servers, WHOLE, partition, committed=True)
            for partition in range(PARTITIONS)
        }
        for transactor in self.transactors:
            transactor.check(whole)
        fatal = [each for transactor in self.transactors for each in transactor.fatal]
        assert not fatal, f"transactional producers had to be replaced: {fatal}"
        return self._told()

    def _wait_read(self, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + WAIT_S
        for protocol in ("classic", "consumer"):
            members = [reader for reader in self.readers if protocol in reader.name]
            for partition, end in ends.items():
                while True:
                    self.check_alive()
                    unread = set(range(end)).difference(*(member.seen[partition] for member in members))
                    if not unread:
                        break
                    assert time.monotonic() < deadline, (
                        f"the {protocol} group has not read {len(unread)} of {end} records of partition "
                        f"{partition}, the first of them {min(unread)}"
                    )
                    time.sleep(0.1)

    def _wait_copied(self, written: dict[int, list[int]]) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "copiers", **QUIET})
        deadline = time.monotonic() + WAIT_S
        try:
            while True:
                self.check_alive()
                asked = [TopicPartition(WRITTEN, partition) for partition in written]
                try:
                    behind = [
                        place
                        for place in consumer.committed(asked, 10)
                        if place.offset < len(written[place.partition])
                    ]
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
                    behind = asked
                if not behind:
                    return
                assert time.monotonic() < deadline, f"the copiers have come to no end: {behind}"
                time.sleep(0.1)
        finally:
            consumer.close()

    def _told(self) -> str:
        return (
            f"{sum(len(each.acknowledged) for each in self.writers)} records acknowledged, read and copied; "
            f"{sum(len(each.committed) for each in self.transactors)} transactions committed, "
            f"{sum(len(each.aborted) for each in self.transactors)} aborted, "
            f"{sum(len(each.undecided) for each in self.transactors)} with an unknown end; "
            f"copiers replaced because they hung: {sum(each.replaced for each in self.copiers)}"
        )


def read_all(servers: str, topic: str, partition: int, *, committed: bool = False) -> list[str]:
    """Values from the beginning to where the end is now."""
    place = TopicPartition(topic, partition)
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    end = _end(admin, place)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    deadline = time.monotonic() + WAIT_S
    position = 0
    try:
        while position < end:
            assert time.monotonic() < deadline, f"read {topic}-{partition} to {position} of {end}"
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    values.append(value_of(message).decode())
            # Markers at the end are no messages, but the position goes past them.
            position = max(position, consumer.position([place])[0].offset)
    finally:
        consumer.close()
    return values


def _end(admin: AdminClient, place: TopicPartition) -> int:
    return int(admin.list_offsets({place: OffsetSpec.latest()})[place].result(WAIT_S).offset)


def value_of(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value


def place_of(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset
