"""Throughput through TLS: `python -m bench.tls`.

Every broker has a plain listener and one with TLS (1.3, and the same certificate of an elliptic curve for all
of them). The same loads go through either, in turns: what TLS costs is a share of the same broker's figure
without it in the same round, and Ottla's figure is a multiple of Apache Kafka's in the same run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import ssl
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import kafka_peer, replay
from bench.admin import throw_away_topic
from bench.brokers import BrokerFailed, BrokerKind, CommandBroker, RunningBroker, free_port, ottla, running
from bench.connection import HOST, through_tls
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.replay import MB, PARTITIONS, Measured
from bench.report import print_aligned
from ottla.cli.files.certificates import Authority

RECORD_BYTES = 1000
BYTES, QUICK_BYTES = 600_000_000, 150_000_000
ROUNDS, QUICK_ROUNDS = 5, 1
WARM_UPS = 3
PLAIN, TLS = "plain", "TLS"
PRODUCE, CONSUME, SINGLE = "produce", "consume", "single records"
LOADS = (PRODUCE, CONSUME, SINGLE)
REQUESTS, QUICK_REQUESTS = 40_000, 10_000
Samples = dict[tuple[str, str, str], list[Measured]]
"""By broker, way and load."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A kind of broker with a second listener, on a port of its own."""

    kind: BrokerKind
    tls_port: int = field(default_factory=free_port)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    volume, requests = (QUICK_BYTES, QUICK_REQUESTS) if options.quick else (BYTES, REQUESTS)
    samples: Samples = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home:
        identity, trusted = _certificates(Path(home))
        kinds = list(_brokers(options, identity))
        for number in range(rounds):
            for closed in kinds if number % 2 == 0 else reversed(kinds):
                print(f"round {number + 1} of {rounds}: {closed.kind.name}", file=sys.stderr, flush=True)
                try:
                    _one_round(samples, closed, trusted, volume, requests, plain_first=number % 2 == 0)
                except BrokerFailed as error:
                    print(error, file=sys.stderr)
                    return 1
    _report(samples, [closed.kind.name for closed in kinds])
    print(f"{rounds} rounds of {volume / MB:.0f} MB; load average {os.getloadavg()[0]:.1f}")
    return 0


def _brokers(options: argparse.Namespace, identity: Path) -> Iterator[Closed]:
    trees = {"Ottla": "", **{f"Ottla {Path(tree).parent.name}": tree for tree in options.against}}
    for name, tree in trees.items():
        port = free_port()
        listeners = f"PLAINTEXT://{HOST}:{{port}},SSL://{HOST}:{port}"
        command = ottla().command + f" --set listeners={listeners} --set ssl.keystore.location={identity}"
        if tree:
            command = f"env PYTHONPATH={shlex.quote(str(Path(tree).resolve()))} {command}"
        yield Closed(CommandBroker(name, command), port)
    if options.alone:
        return
    try:
        kafka = kafka_peer.fetch()
    except PeerUnavailable as reason:
        print(f"skipping Apache Kafka: {reason}", file=sys.stderr)
        return
    port = free_port()
    addresses = f"PLAINTEXT://{HOST}:{{port}},SSL://{HOST}:{port},CONTROLLER://{HOST}:{{controller_port}}"
    settings = (
        f"listeners={addresses}\nadvertised.listeners={addresses}\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={identity}\n"
    )
    yield Closed(ApacheKafka(kafka, settings=settings), port)


def _one_round(
    samples: Samples,
    closed: Closed,
    trusted: ssl.SSLContext,
    volume: int,
    requests: int,
    *,
    plain_first: bool,
) -> None:
    with running(closed.kind) as plain:
        ways = {PLAIN: plain, TLS: replace(plain, port=closed.tls_port)}
        for _ in range(WARM_UPS):
            for way, broker in ways.items():
                with _speaking(way, trusted):
                    _loads(broker, volume // 2, requests // 2)
        for way in (PLAIN, TLS) if plain_first else (TLS, PLAIN):
            with _speaking(way, trusted):
                for load, measured in _loads(ways[way], volume, requests).items():
                    samples.setdefault((closed.kind.name, way, load), []).append(measured)


@contextmanager
def _speaking(way: str, trusted: ssl.SSLContext) -> Iterator[None]:
    with through_tls(trusted) if way == TLS else nullcontext():
        yield


def _loads(broker: RunningBroker, volume: int, requests: int) -> dict[str, Measured]:
    with throw_away_topic(broker.port, "load", PARTITIONS) as topic:
        os.sync()
        produced = replay.produce(broker, topic, RECORD_BYTES, 1, volume)
        return {
            PRODUCE: produced,
            CONSUME: replay.consume(broker, topic, RECORD_BYTES),
            SINGLE: replay.small_requests(broker, topic, PARTITIONS, requests),
        }


def _report(samples: Samples, names: Sequence[str]) -> None:
    table = [["", "load", "rate", "of plain", "broker's CPU", "of plain"]]
    for name in names:
        for load in LOADS:
            rates, costs = (
                {way: [get(load, each) for each in samples[name, way, load]] for way in (PLAIN, TLS)}
                for get in (_rate, _cost)
            )
            for way in (PLAIN, TLS):
                row = [f"{name}, {way}", load, _shown(rates[way], 0), "", _shown(costs[way], 2), ""]
                if way == TLS:
                    row[3] = f"{_ratio(rates[TLS], rates[PLAIN]):.0%}"
                    row[5] = f"{_ratio(costs[TLS], costs[PLAIN]):.0%}"
                table.append(row)
    print_aligned(table, words=2)
    print(
        "\nmedian of the rounds, in brackets the lowest and highest; shares are medians of the rounds' shares"
    )
    mine, *others = names
    for other in others:
        for load in LOADS:
            for way in (PLAIN, TLS):
                rate, cost = (
                    statistics.median(get(load, each) for each in samples[mine, way, load])
                    / statistics.median(get(load, each) for each in samples[other, way, load])
                    for get in (_rate, _cost)
                )
                print(f"{mine} beside {other}, {load}, {way}: {rate:.2f} × the rate, {cost:.2f} × the CPU")


def _rate(load: str, measured: Measured) -> float:
    return measured.requests_per_s if load == SINGLE else measured.mb_per_s


def _cost(load: str, measured: Measured) -> float:
    return measured.cpu_us_per_request if load == SINGLE else measured.cpu_s_per_gb


def _ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, others, strict=True))


def _shown(values: Sequence[float], digits: int) -> str:
    least, middle, most = min(values), statistics.median(values), max(values)
    if len(values) == 1:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"


def _certificates(home: Path) -> tuple[Path, ssl.SSLContext]:
    """The brokers' identity, and what a client trusts."""
    authority = Authority()
    identity = home / "broker.pem"
    identity.write_bytes(authority.issue("broker", [HOST]).identity)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    return identity, context


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, help="rounds per broker")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument(
        "--against", action="append", default=[], metavar="SRC", help="another tree's src folder"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
