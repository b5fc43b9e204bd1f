"""A member of a share group, and a tool, made of single requests."""

from __future__ import annotations

import struct
from typing import Any

from kio.schema.errors import ErrorCode
from raw_client import RawConnection, framed, header

from ottla.client.messages import ask_codec
from ottla.wire.api import ApiKey

CONSUMER_GROUP, SHARE_PARTITION = 0, 2


class GroupCalls:
    def __init__(self, broker: str) -> None:
        self.connection = RawConnection(broker)

    def call(self, api: ApiKey, version: int, /, **values: Any) -> Any:
        codec = ask_codec(api, version)
        self.connection.send(framed(header(api, version) + codec.write(values)))
        answer = self.connection.receive()
        assert struct.unpack_from(">i", answer) == (1,)
        return codec.read(answer, 5 if codec.response_header_flexible else 4)

    def find(self, group: str) -> Any:
        found = self.call(ApiKey.FIND_COORDINATOR, 6, key_type=CONSUMER_GROUP, coordinator_keys=[group])
        return found.coordinators[0]

    def beat(self, group: str, member: str, epoch: int, *topics: str) -> Any:
        return self.call(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
        )

    def join(self, group: str, member: str, *topics: str) -> Any:
        """Once the coordinator has loaded, and states have begun."""
        while True:
            self.find(group)
            reply = self.beat(group, member, 0, *topics)
            if reply.error_code is ErrorCode.none and reply.assignment.topic_partitions:
                return reply
            assert reply.error_code in (
                ErrorCode.none,
                ErrorCode.coordinator_load_in_progress,
                ErrorCode.not_coordinator,
            ), reply

    def describe(self, group: str) -> Any:
        return self.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[group]).groups[0]

    def offsets(self, group: str, topics: dict[str, list[int]] | None = None, version: int = 1) -> Any:
        asked = (
            None
            if topics is None
            else [{"topic_name": name, "partitions": some} for name, some in topics.items()]
        )
        groups = [{"group_id": group, "topics": asked}]
        return self.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=groups).groups[0]

    def alter(self, group: str, topic: str, offsets: dict[int, int]) -> Any:
        partitions = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
        return self.call(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            0,
            group_id=group,
            topics=[{"topic_name": topic, "partitions": partitions}],
        )

    def delete_offsets(self, group: str, *topics: str) -> Any:
        return self.call(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            0,
            group_id=group,
            topics=[{"topic_name": name} for name in topics],
        )

    def delete_group(self, group: str) -> ErrorCode:
        answer = self.call(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
        return ErrorCode(answer.results[0].error_code)

    def listed(self, types: list[str]) -> list[tuple[str, str, str]]:
        answer = self.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=types)
        return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]
