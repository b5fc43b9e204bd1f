"""What answers tell of members of consumer groups and of share groups: both families say it in the same
fields, of classes of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla.coordinator.groups.commands import Partitions
from ottla.handlers.authorized import NOT_ASKED, describable, operations_on, require
from ottla.handlers.context import RequestContext
from ottla.handlers.outcome import error_message
from ottla.metadata.image import MetadataImage
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.errors import ErrorCode, KafkaError, TopicAuthorizationFailed


def assigned_topics(of_topic: Callable[..., Any], partitions: Partitions) -> tuple[Any, ...]:
    return tuple(
        of_topic(topic_id=topic_id, partitions=tuple(map(i32, sorted(indexes))))
        for topic_id, indexes in sorted(partitions.items())
    )


def described_topics(
    of_topic: Callable[..., Any], image: MetadataImage, partitions: Partitions
) -> tuple[Any, ...]:
    """With names, without topics that are gone."""
    return tuple(
        of_topic(
            topic_id=topic_id,
            topic_name=TopicName(image.topic_names[topic_id]),
            partitions=tuple(map(i32, sorted(indexes))),
        )
        for topic_id, indexes in sorted(partitions.items())
        if topic_id in image.topic_names
    )


class GroupWithMembers(NamedTuple):
    group: Any
    """With its state, epoch, assignment epoch and assignor."""
    members: tuple[Any, ...]
    """As the answer tells them."""
    topics: Iterable[str]
    """All that it names."""


async def described_groups(
    of_group: Callable[..., Any],
    context: RequestContext,
    request: Any,
    find: Callable[[str], Awaitable[GroupWithMembers]],
) -> tuple[Any, ...]:
    """Each group for itself; `find` raises KafkaError where there is none."""

    async def describe(group_id: str) -> Any:
        operations = NOT_ASKED
        try:
            require(context, Operation.DESCRIBE, AclResource.GROUP, group_id)
            group, members, topics = await find(group_id)
            if request.include_authorized_operations:
                operations = operations_on(context, AclResource.GROUP, group_id)
            if not describable(context, topics):
                raise TopicAuthorizationFailed(
                    "The group has described topic(s) that the client is not authorized to describe."
                )
        except KafkaError as error:
            return of_group(
                error_code=error.code,
                error_message=error_message(error),
                group_id=GroupId(group_id),
                group_state="",
                group_epoch=i32(0),
                assignment_epoch=i32(0),
                assignor_name="",
                members=(),
                authorized_operations=NOT_ASKED,
            )
        return of_group(
            error_code=ErrorCode.none,
            group_id=GroupId(group_id),
            group_state=group.state,
            group_epoch=i32(group.epoch),
            assignment_epoch=i32(group.assignment_epoch),
            assignor_name=group.assignor,
            members=members,
            authorized_operations=operations,
        )

    return tuple([await describe(group_id) async for group_id in in_turns(request.group_ids)])
