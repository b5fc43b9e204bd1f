"""What consumer groups cost a broker: `python -m bench.groups`.

    heartbeats    many groups with many members each, all heartbeating at the interval of a real client
    commits       offset commits of one partition each, as fast as the broker takes them

Members are pre-encoded frames over a few sockets: member number n of every group speaks over connection n, so
that a JoinGroup that waits for the others of its group never holds those back.
"""

from __future__ import annotations

import argparse
import io
import struct
import sys
import time
from datetime import timedelta
from typing import Any

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.join_group.v3.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v3.response import JoinGroupResponse
from kio.schema.offset_commit.v7.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.sync_group.v3.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.serial import entity_reader, entity_writer

from bench import kafka_peer
from bench.admin import create_topic
from bench.brokers import BrokerFailed, BrokerKind, RunningBroker, ottla, running
from bench.connection import LENGTH, Connection
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.replay import MB

TOPIC = "groups"
GROUPS_AT_ONCE = 100
COMMITS_IN_FLIGHT = 64
LOAD_TIMEOUT_S = 60
# Longer than it takes to form all groups, during which nobody heartbeats.
SESSION_TIMEOUT = timedelta(minutes=10)
REBALANCE_TIMEOUT = timedelta(seconds=60)
SUBSCRIPTION = (
    struct.pack(">hi", 0, 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)
)

_read_join = entity_reader(JoinGroupResponse)


class RequestRefused(Exception):
    """A broker answered with an error code."""


def frame(request: Any) -> bytes:
    buffer = io.BytesIO()
    header_type = type(request).__header_schema__
    header = header_type(
        request_api_key=type(request).__api_key__,
        request_api_version=type(request).__version__,
        correlation_id=0,
        client_id="bench",
    )
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return LENGTH.pack(len(body)) + body


def form_groups(connections: list[Connection], groups: int) -> list[list[bytes]]:
    """Join every member; per connection the heartbeat frames of its members."""
    heartbeats: list[list[bytes]] = [[] for _ in connections]
    for first in range(0, groups, GROUPS_AT_ONCE):
        names = [f"group-{number}" for number in range(first, min(first + GROUPS_AT_ONCE, groups))]
        joined = _join(connections, names)
        for index, connection in enumerate(connections):
            connection.send(b"".join(_sync(name, joined, index) for name in names))
        for index, connection in enumerate(connections):
            for name in names:
                _check(connection.receive(), "SyncGroup")
                generation, member_id, _ = joined[name][index]
                request = HeartbeatRequest(group_id=name, generation_id=generation, member_id=member_id)
                heartbeats[index].append(frame(request))
    return heartbeats


def _join(connections: list[Connection], names: list[str]) -> dict[str, list[tuple[int, str, str]]]:
    """Per group: generation, member id and leader, as each connection's member was told."""
    joined: dict[str, list[tuple[int, str, str]]] = {name: [] for name in names}
    for connection in connections:
        connection.send(
            b"".join(
                frame(
                    JoinGroupRequest(
                        group_id=name,
                        session_timeout=SESSION_TIMEOUT,
                        rebalance_timeout=REBALANCE_TIMEOUT,
                        member_id="",
                        protocol_type="consumer",
                        protocols=(JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
                    )
                )
                for name in names
            )
        )
    for connection in connections:
        for name in names:
            answer, _ = _read_join(bytes(connection.receive()), 4)
            if answer.error_code.value:
                raise RequestRefused(f"JoinGroup failed: {answer.error_code.name}")
            joined[name].append((answer.generation_id, answer.member_id, answer.leader))
    return joined


def _sync(name: str, joined: dict[str, list[tuple[int, str, str]]], index: int) -> bytes:
    generation, member_id, leader = joined[name][index]
    assignments = ()
    if member_id == leader:
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff")
            for _, member, _ in joined[name]
        )
    return frame(
        SyncGroupRequest(
            group_id=name, generation_id=generation, member_id=member_id, assignments=assignments
        )
    )


def _check(answer: memoryview, what: str) -> None:
    (error,) = struct.unpack_from(">h", answer, 8)
    if error:
        raise RequestRefused(f"{what} failed with error code {error}")


def heartbeat(
    connections: list[Connection], frames: list[list[bytes]], interval_s: float, rounds: int
) -> None:
    """Every member once per interval, spread over it."""
    slices = 20
    start = time.monotonic()
    for turn in range(rounds * slices):
        part = turn % slices
        for connection, of_member in zip(connections, frames, strict=True):
            chosen = of_member[part::slices]
            connection.send(b"".join(chosen))
            for _ in chosen:
                _check(connection.receive(), "Heartbeat")
        time.sleep(max(0.0, start + (turn + 1) * interval_s / slices - time.monotonic()))


def commit(connection: Connection, commits: int) -> None:
    requests = [
        frame(
            OffsetCommitRequest(
                group_id=f"commit-{number % 100}",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=(
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=(
                            OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=number, committed_metadata=""
                            ),
                        ),
                    ),
                ),
            )
        )
        for number in range(1000)
    ]
    sent = received = 0
    while received < commits:
        burst = min(COMMITS_IN_FLIGHT - (sent - received), commits - sent)
        if burst > 0:
            connection.send(b"".join(requests[(sent + number) % 1000] for number in range(burst)))
            sent += burst
        answer = connection.receive()
        received += 1
        # throttle time, one topic with its name, one partition: its error is the last field
        (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if error:
            raise RequestRefused(f"OffsetCommit failed with error code {error}")


def measure(broker: RunningBroker, options: argparse.Namespace) -> None:
    create_topic(broker.port, TOPIC, 1)
    connections = [Connection(broker.port) for _ in range(options.members)]
    connections[0].send(frame(FindCoordinatorRequest(key_type=0, coordinator_keys=("group-0",))))
    connections[0].receive()
    _await_coordinator(broker.port)

    before_mb = broker.memory().resident / MB
    begin, cpu = time.monotonic(), broker.cpu_seconds()
    frames = form_groups(connections, options.groups)
    members = options.groups * options.members
    print(
        f"  forming {options.groups:,} groups of {options.members}: {time.monotonic() - begin:.1f} s, "
        f"{(broker.cpu_seconds() - cpu) / members * 1e6:.0f} µs CPU per member"
    )
    begin, cpu = time.monotonic(), broker.cpu_seconds()
    heartbeat(connections, frames, options.interval, options.rounds)
    elapsed, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
    beats = members * options.rounds
    print(
        f"  heartbeats every {options.interval:g} s: {beats / elapsed:,.0f}/s, "
        f"{100 * used / elapsed:.0f} % of a core, {used / beats * 1e6:.0f} µs CPU each"
    )
    print(
        f"  memory (RSS): {before_mb:.0f} MB before, {broker.memory().resident / MB:.0f} MB with the groups"
    )
    begin, cpu = time.monotonic(), broker.cpu_seconds()
    commit(connections[0], options.commits)
    elapsed, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
    print(
        f"  commits: {options.commits / elapsed:,.0f}/s, {100 * used / elapsed:.0f} % of a core, "
        f"{used / options.commits * 1e6:.0f} µs CPU each"
    )


def _await_coordinator(port: int) -> None:
    """The offsets topic has just been created; its partitions take a moment to be loaded."""
    deadline = time.monotonic() + LOAD_TIMEOUT_S
    while True:
        connection = Connection(port)
        try:
            commit(connection, 100)
            return
        except RequestRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        finally:
            connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__.split("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10, help="per group")
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between heartbeats")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=50_000)
    options = parser.parse_args()
    try:
        kind: BrokerKind = ottla()
        if options.broker == "kafka":
            kind = ApacheKafka(kafka_peer.fetch())
        with running(kind) as broker:
            print(f"{kind.name}:")
            measure(broker, options)
    except (BrokerFailed, PeerUnavailable, RequestRefused) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
