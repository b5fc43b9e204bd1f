"""What strangers can do to others: `python -m bench.hostile`.

One broker with an open listener, one with TLS, and one with TLS and logins. A client that is logged in
produces single records at a fixed rate, each measured from when it was due; its 99th percentile during an
attack is compared with the quiet seconds just before. Each attack comes from a process of its own at a given
pace (see `attacks`); how much of a core it took is told, since that alone slows down a machine with few.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event
from pathlib import Path

from bench import encoding
from bench.admin import create_topic
from bench.attacks import ATTACKS, PASSWORD, USER, Done, Place, carried_out, log_in
from bench.connection import HOST, Connection, through_tls
from bench.latency import percentile
from bench.process import cpu_seconds, memory_alone
from bench.report import print_aligned
from ottla.cli.files.certificates import Authority
from ottla.runtime.net import free_ports
from ottla.testing import BrokerProcess

MIB = 1 << 20
RATIO_MAX = 3.0
MEMORY_GROWTH_MAX = 160 * MIB
"""Above what the broker had before the first attack: what its settings let requests and answers take, and
some kilobytes for each of the connections."""
TOPIC, BYSTANDERS_TOPIC = "long", "bystander"
LONG_BATCHES, LONG_RECORDS = 64, 1000
RECORDS_PER_S = 500
RECORDS_AT_ONCE = 50
LATE_NS_MAX = 1_000_000_000
QUIET_S, SETTLE_S, SAMPLE_S = 10.0, 5.0, 0.05
QUICK_QUIET_S = 4.0
NS = 1_000_000_000
Samples = list[tuple[int, int]]
"""When it was due, and how long it took, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Load:
    count: int
    per_second: float


FULL: Mapping[str, Load] = {
    "frames before login": Load(100_000, 500),
    "frames after login": Load(100_000, 250),
    "half-open handshakes": Load(2_000, 250),
    "slow readers": Load(100, 20),
    "wrong passwords": Load(10_000, 200),
}
QUICK: Mapping[str, Load] = {
    "frames before login": Load(3_000, 500),
    "frames after login": Load(1_500, 250),
    "half-open handshakes": Load(2_000, 250),
    "slow readers": Load(100, 20),
    "wrong passwords": Load(1_000, 200),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Waits in milliseconds, memory in bytes."""

    attack: str
    done: Done
    p50_before: float
    p50_during: float
    p99_before: float
    p99_during: float
    memory_before: int
    memory_peak: int
    memory_after: int
    broker_cpu_share: float

    @property
    def ratio(self) -> float:
        return self.p99_during / self.p99_before


class Measuring:
    """One broker, the client that means well, and how both fare while somebody attacks."""

    def __init__(
        self, broker: BrokerProcess, place: Place, bystander: Bystander, quiet_s: float, settle_s: float
    ) -> None:
        self.broker = broker
        self.memory_at_first = _private(broker.pid)
        self._place = place
        self._bystander = bystander
        self._quiet_s = quiet_s
        self._settle_s = settle_s

    def finish(self) -> int:
        """The status that the broker ended with."""
        self._bystander.stop()
        return self.broker.stop()

    def measure(self, name: str, load: Load) -> Outcome:
        forking = multiprocessing.get_context("fork")
        quiet_from = time.monotonic_ns()
        time.sleep(self._quiet_s)
        before = _private(self.broker.pid)
        results, theirs = forking.Pipe(duplex=False)
        attacker = forking.Process(target=_attack, args=(name, self._place, load, theirs))
        cpu, began = cpu_seconds(self.broker.pid), time.monotonic_ns()
        attacker.start()
        theirs.close()
        peak = before
        while not results.poll(SAMPLE_S):
            peak = max(peak, _private(self.broker.pid))
        try:
            done: Done = results.recv()
        except EOFError:
            raise RuntimeError(f"the attack by {name} broke off") from None
        finally:
            attacker.join()
        ended = time.monotonic_ns()
        share = (cpu_seconds(self.broker.pid) - cpu) / ((ended - began) / NS)
        time.sleep(self._settle_s)
        quiet, attacked = self._bystander.waits((quiet_from, began), (began, ended))
        return Outcome(
            name,
            done,
            *(percentile(waits, part) / 1e6 for part in (0.5, 0.99) for waits in (quiet, attacked)),
            memory_before=before,
            memory_peak=peak,
            memory_after=_private(self.broker.pid),
            broker_cpu_share=share,
        )


@contextmanager
def measuring(*, quiet_s: float = QUIET_S, settle_s: float = SETTLE_S) -> Iterator[Measuring]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
        authority = Authority()
        identity = Path(home, "broker.pem")
        identity.write_bytes(authority.issue("broker", [HOST]).identity)
        plain, tls, sasl = free_ports(HOST, 3)
        settings = {
            "listeners": f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{tls},SASL_SSL://{HOST}:{sasl}",
            "ssl.keystore.location": str(identity),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
        }
        place = Place(plain, tls, sasl, authority.certificate, TOPIC)
        with BrokerProcess(settings, port=plain) as broker:
            _fill(plain)
            with Bystander(place) as bystander:
                yield Measuring(broker, place, bystander, quiet_s, settle_s)


class Bystander:
    """Logged in, it produces one record after the other, in a process of its own."""

    def __init__(self, place: Place) -> None:
        forking = multiprocessing.get_context("fork")
        self._stopping = forking.Event()
        self._samples, self._theirs = forking.Pipe(duplex=False)
        self._process = forking.Process(target=_produce, args=(place, self._stopping, self._theirs))
        self._receiver = threading.Thread(target=self._receive)
        self._known: Samples = []
        self._more = threading.Condition()
        self._is_over = False

    def __enter__(self) -> Bystander:
        self._process.start()
        self._theirs.close()
        self._receiver.start()
        with self._more:
            self._more.wait_for(lambda: self._known or self._is_over)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._receiver.join()
        self._process.join()

    def _receive(self) -> None:
        """All the time: a full pipe would stop the client, and that would be taken for the broker's doing."""
        with suppress(EOFError):
            while True:
                taken = self._samples.recv()
                with self._more:
                    self._known += taken
                    self._more.notify_all()
        with self._more:
            self._is_over = True
            self._more.notify_all()

    def waits(self, *windows: tuple[int, int]) -> list[list[int]]:
        """Of the records that were due in each, shortest first. RuntimeError if it was cut off."""
        last = max(end for _, end in windows)
        with self._more:
            self._more.wait_for(lambda: self._is_over or (self._known and self._known[-1][0] >= last))
            if not self._known or self._known[-1][0] < last:
                raise RuntimeError("the client that means well was cut off")
            return [sorted(wait for due, wait in self._known if begin <= due < end) for begin, end in windows]


def _produce(place: Place, stopping: Event, samples: Pipe) -> None:
    with through_tls(place.context()):
        connection = Connection(place.sasl)
    log_in(connection.socket, USER, PASSWORD)
    batch = encoding.record_batch([bytes(100)], int(time.time() * 1000))
    frame = encoding.produce_frame(BYSTANDERS_TOPIC, 0, batch, encoding.ACKS_ALL)
    due = time.monotonic_ns()
    taken: Samples = []
    while not stopping.is_set():
        for _ in range(RECORDS_AT_ONCE):
            # On a machine that is busy otherwise, what was late once must not be late for ever.
            due = max(due + NS // RECORDS_PER_S, time.monotonic_ns() - LATE_NS_MAX)
            time.sleep(max(due - time.monotonic_ns(), 0) / NS)
            connection.send(frame)
            connection.receive()
            taken.append((due, time.monotonic_ns() - due))
        samples.send(taken)
        taken = []
    connection.close()
    samples.close()


def _fill(port: int) -> None:
    create_topic(port, BYSTANDERS_TOPIC, 1)
    create_topic(port, TOPIC, 1)
    batch = encoding.record_batch([bytes(1000)] * LONG_RECORDS, int(time.time() * 1000))
    frame = encoding.produce_frame(TOPIC, 0, batch, encoding.ACKS_ALL)
    connection = Connection(port)
    for _ in range(LONG_BATCHES):
        connection.call(frame)
    connection.close()


def _attack(name: str, place: Place, load: Load, results: Pipe) -> None:
    results.send(carried_out(name, place, load.count, load.per_second))
    results.close()


def _private(pid: int) -> int:
    """Not what is mapped of log files, which is the kernel's to drop."""
    return memory_alone(pid).private


def report(outcomes: Sequence[Outcome]) -> None:
    head = ["attack", "p50 ms", "during", "p99 ms", "during", "ratio", "MiB", "peak", "after"]
    table = [[*head, "connections", "a second", "attacker's CPU", "broker's CPU"]]
    for each in outcomes:
        waits = [each.p50_before, each.p50_during, each.p99_before, each.p99_during]
        sizes = [each.memory_before, each.memory_peak, each.memory_after]
        done = each.done
        table.append(
            [
                each.attack,
                *(f"{wait:.2f}" for wait in waits),
                f"{each.ratio:.1f}",
                *(f"{size / MIB:.0f}" for size in sizes),
                f"{done.connections:,}",
                f"{done.connections / done.seconds:.0f}",
                f"{done.cpu_seconds / done.seconds:.0%}",
                f"{each.broker_cpu_share:.0%}",
            ]
        )
    print_aligned(table, words=1)
    for each in outcomes:
        what = ", ".join(f"{count:,} {kind}" for kind, count in sorted(each.done.outcomes.items()))
        print(f"{each.attack}: {each.done.frames:,} frames in {each.done.seconds:.0f} s; {what}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    loads = QUICK if options.quick else FULL
    wanted = [name for name in ATTACKS if not options.only or any(part in name for part in options.only)]
    outcomes = []
    with measuring(quiet_s=QUICK_QUIET_S if options.quick else QUIET_S) as measured:
        for name in wanted:
            load = loads[name]
            load = Load(options.count or load.count, options.pace or load.per_second)
            print(f"{name}: {load.count:,}, {load.per_second:g} a second", file=sys.stderr, flush=True)
            outcomes.append(measured.measure(name, load))
        at_first = measured.memory_at_first
        status = measured.finish()
        log = measured.broker.log
    report(outcomes)
    growth = max(each.memory_peak for each in outcomes) - at_first
    print(
        f"memory grew by {growth / MIB:.0f} MiB at most (bound {MEMORY_GROWTH_MAX / MIB:.0f}); "
        f"the broker wrote {log.count(chr(10)):,} lines to its log, {log.count('Traceback')} tracebacks "
        f"among them, and ended with status {status}; load average {os.getloadavg()[0]:.1f}"
    )
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer frames, about a minute and a half")
    parser.add_argument("--only", action="append", default=[], help="attacks by name or part of it")
    parser.add_argument("--count", type=int, help="frames, sockets or logins, instead of the usual")
    parser.add_argument("--pace", type=float, help="how many of them a second, instead of the usual")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
