"""Members of one group that each bring a megabyte of metadata and wait for the rebalance."""

from __future__ import annotations

import datetime
import select
import time

from bystander import MIB, Bystander, memory_bytes
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from raw_client import JOIN_GROUP, RawConnection, parse_response, request_frame, wait_for_coordinator

from ottla.testing import BrokerProcess

MEMBERS = 160
METADATA_BYTES = MIB
REFUSED_MIN = MEMBERS - 64
WAIT_SECONDS_MAX = 30
SETTINGS = {
    "group.initial.rebalance.delay.ms": 50_000,
    "queued.max.request.bytes": 64 * MIB,
    "socket.request.max.bytes": 16 * MIB,
}
MEMORY_BYTES_MAX = 170 * MIB
"""ottla.group.max.bytes is 64 MiB, half of queued.max.request.bytes may be kept for later; the rest is what
requests take that are being refused."""


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
        growth, deadline = 0, time.monotonic() + WAIT_SECONDS_MAX
        refused: list[RawConnection] = []
        while len(refused) < REFUSED_MIN and growth < MEMORY_BYTES_MAX and time.monotonic() < deadline:
            growth = max(growth, memory_bytes(broker.pid) - before)
            answered, _, _ = select.select([member.socket for member in members], [], [], 0.05)
            refused = [member for member in members if member.socket in answered]
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB for {MEMBERS} members"
        assert len(refused) >= REFUSED_MIN
        answers = [parse_response(JOIN_GROUP, 5, member.receive()) for member in refused]
        assert {answer.error_code for answer in answers} == {ErrorCode.group_max_size_reached}
        assert "ottla.group.max.bytes" in broker.log
        bystander.assert_was_served()
        for member in members:
            member.close()
        assert broker.stop(timeout_seconds=20) == 0
