"""Members that bring megabytes of metadata, to keep or to store."""

from __future__ import annotations

import datetime
import select
import time

from bystander import MIB, Bystander, memory_bytes
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from raw_client import (
    JOIN_GROUP,
    RawConnection,
    join_group_frame,
    parse_response,
    request_frame,
    wait_for_coordinator,
)

from ottla.testing import BrokerProcess

CONSUMER_GROUP_HEARTBEAT = 68
MEMBERS = 240
METADATA_BYTES = MIB
REFUSED_MIN = MEMBERS - 64
WAIT_SECONDS_MAX = 30
SETTINGS = {
    "group.initial.rebalance.delay.ms": 50_000,
    "queued.max.request.bytes": 64 * MIB,
    "socket.request.max.bytes": 16 * MIB,
}
KEPT_BYTES_MAX = 144 * MIB
"""64 MiB are ottla.group.max.bytes, half of queued.max.request.bytes may be kept for later. What the
allocator keeps of what was freed is given back within the time the test waits."""


def join_group(group: str, number: int) -> bytes:
    timeout = datetime.timedelta(seconds=60)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout=timeout,
        rebalance_timeout=timeout,
        member_id="",
        group_instance_id=f"member-{number}",
        protocol_type="anything",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(METADATA_BYTES)),),
    )
    return request_frame(JOIN_GROUP, 5, request)


def test_metadata_of_members_is_bounded() -> None:
    with BrokerProcess(SETTINGS) as broker, Bystander(broker.bootstrap_servers) as bystander:
        members = [RawConnection(broker.bootstrap_servers, timeout_s=30) for _ in range(MEMBERS)]
        wait_for_coordinator(members[0], "large")
        before = memory_bytes(broker.pid)
        for number, member in enumerate(members):
            member.send(join_group("large", number))
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        refused: list[RawConnection] = []
        while len(refused) < REFUSED_MIN and time.monotonic() < deadline:
            answered, _, _ = select.select([member.socket for member in members], [], [], 0.05)
            refused = [member for member in members if member.socket in answered]
        assert len(refused) >= REFUSED_MIN
        while (kept := memory_bytes(broker.pid) - before) > KEPT_BYTES_MAX:
            assert time.monotonic() < deadline, f"{kept / MIB:.0f} MiB for {MEMBERS} members"
            time.sleep(0.05)
        answers = [parse_response(JOIN_GROUP, 5, member.receive()) for member in refused]
        assert {answer.error_code for answer in answers} == {ErrorCode.group_max_size_reached}
        assert "ottla.group.max.bytes" in broker.log
        bystander.assert_was_served()
        for member in members:
            member.close()
        assert broker.stop(timeout_seconds=20) == 0


def test_what_cannot_be_stored_disturbs_no_other_group() -> None:
    """A record that the log refuses would have all groups of its partition loaded again."""
    settings = {"group.initial.rebalance.delay.ms": 30_000, "offsets.topic.num.partitions": 1}
    request = ConsumerGroupHeartbeatRequest(
        group_id="hostile",
        member_id="attacker",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=datetime.timedelta(seconds=10),
        subscribed_topic_names=tuple(f"a-name-of-a-topic-{i}" for i in range(70_000)),
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=(),
    )
    with (
        BrokerProcess(settings) as broker,
        RawConnection(broker.bootstrap_servers) as waiting,
        RawConnection(broker.bootstrap_servers) as attacker,
    ):
        wait_for_coordinator(waiting, "waiting")
        waiting.send(join_group_frame("waiting"))
        answer = attacker.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert select.select([waiting.socket], [], [], 0.5)[0] == [], "another group lost its place"
        assert answer.error_code is ErrorCode.group_max_size_reached
        assert "max.message.bytes" in answer.error_message
