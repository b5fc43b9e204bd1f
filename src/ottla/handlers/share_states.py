"""What share groups have read, as brokers ask each other: InitializeShareGroupState (version 0),
ReadShareGroupState (0), WriteShareGroupState (0 to 1), DeleteShareGroupState (0), ReadShareGroupStateSummary
(0 to 1).

Of WriteShareGroupState and the summary, v1 has the number of records that are done with (KIP-1226). Each
partition is answered for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.delete_share_group_state.v0 import response as deleted
from kio.schema.initialize_share_group_state.v0 import response as initialized
from kio.schema.read_share_group_state.v0 import response as read
from kio.schema.read_share_group_state_summary.v1 import response as summarized
from kio.schema.write_share_group_state.v1 import response as written
from kio.static.primitive import i8, i16, i32, i64

from ottla.coordinator.share.commands import NO_START_OFFSET, SharePartition, Summary, WriteRequest
from ottla.coordinator.share.records import StateBatch
from ottla.coordinator.share.shard import ShareState
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import Refuse
from ottla.handlers.registry import handles
from ottla.runtime.turns import slices_in_turns
from ottla.wire.api import ApiKey
from ottla.wire.errors import InvalidRequest, KafkaError


@dataclass(frozen=True, slots=True)
class _Question:
    """How one of these APIs asks the coordinator of a partition, and how its answer looks."""

    response: Callable[..., Any]
    of_topic: Callable[..., Any]
    of_partition: Callable[..., Any]
    ask: Callable[[Broker, SharePartition, Any], Awaitable[Any]]
    told: Callable[[Any], dict[str, Any]] = lambda answer: {}
    """What a partition is told besides; of an error there is no answer."""

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        return self._response(
            (topic.topic_id, [self._partition(each.partition, error) for each in topic.partitions])
            for topic in request.topics
        )

    async def answer(self, broker: Broker, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            partitions: list[Any] = []
            async for some in slices_in_turns(topic.partitions):
                # All are asked before the first is waited for: they are committed together.
                asked = [(each, self._ask(broker, request.group_id, topic.topic_id, each)) for each in some]
                partitions += [await self._answered(each.partition, found) for each, found in asked]
            topics.append((topic.topic_id, partitions))
        return self._response(topics)

    def _ask(self, broker: Broker, group_id: str, topic_id: Any, asked: Any) -> Awaitable[Any] | KafkaError:
        try:
            if topic_id is None:
                raise InvalidRequest("the topic id must not be null")
            return self.ask(broker, SharePartition(group_id, topic_id, asked.partition), asked)
        except KafkaError as error:
            return error

    async def _answered(self, partition: int, found: Awaitable[Any] | KafkaError) -> Any:
        if isinstance(found, KafkaError):
            return self._partition(partition, found)
        try:
            return self._partition(partition, None, await found)
        except KafkaError as error:
            return self._partition(partition, error)

    def _partition(self, partition: int, error: KafkaError | None, answer: Any = None) -> Any:
        return self.of_partition(
            partition=partition,
            error_code=error_code(error),
            error_message=error_message(error),
            **self.told(answer),
        )

    def _response(self, topics: Any) -> Any:
        return self.response(
            results=tuple(
                self.of_topic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics
            )
        )


def _state(state: ShareState | None) -> dict[str, Any]:
    if state is None:
        return {"state_epoch": i32(0), "start_offset": i64(NO_START_OFFSET), "state_batches": ()}
    return {
        "state_epoch": i32(state.state_epoch),
        "start_offset": i64(state.start_offset),
        "state_batches": tuple(
            read.StateBatch(
                first_offset=i64(batch.first_offset),
                last_offset=i64(batch.last_offset),
                delivery_state=i8(batch.delivery_state),
                delivery_count=i16(batch.delivery_count),
            )
            for batch in state.batches
        ),
    }


def _summary(summary: Summary | None) -> dict[str, Any]:
    return (summary or Summary())._asdict()


def _write_request(asked: Any) -> WriteRequest:
    return WriteRequest(
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in asked.state_batches
        ),
    )


_INITIALIZE = _Question(
    initialized.InitializeShareGroupStateResponse,
    initialized.InitializeStateResult,
    initialized.PartitionResult,
    lambda broker, name, asked: broker.share_states.initialize(name, asked.state_epoch, asked.start_offset),
)
_READ = _Question(
    read.ReadShareGroupStateResponse,
    read.ReadStateResult,
    read.PartitionResult,
    lambda broker, name, asked: broker.share_states.read(name, asked.leader_epoch),
    _state,
)
_WRITE = _Question(
    written.WriteShareGroupStateResponse,
    written.WriteStateResult,
    written.PartitionResult,
    lambda broker, name, asked: broker.share_states.write(name, _write_request(asked)),
)
_DELETE = _Question(
    deleted.DeleteShareGroupStateResponse,
    deleted.DeleteStateResult,
    deleted.PartitionResult,
    lambda broker, name, asked: broker.share_states.delete(name),
)
_SUMMARIZE = _Question(
    summarized.ReadShareGroupStateSummaryResponse,
    summarized.ReadStateSummaryResult,
    summarized.PartitionResult,
    lambda broker, name, asked: broker.share_states.summarize(name),
    _summary,
)


def _handle(key: ApiKey, question: _Question) -> None:
    refuse: Refuse = question.refuse

    async def answer(broker: Broker, context: RequestContext, request: Any) -> Any:
        return await question.answer(broker, request)

    handles(key, refuse)(answer)


_handle(ApiKey.INITIALIZE_SHARE_GROUP_STATE, _INITIALIZE)
_handle(ApiKey.READ_SHARE_GROUP_STATE, _READ)
_handle(ApiKey.WRITE_SHARE_GROUP_STATE, _WRITE)
_handle(ApiKey.DELETE_SHARE_GROUP_STATE, _DELETE)
_handle(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, _SUMMARIZE)
