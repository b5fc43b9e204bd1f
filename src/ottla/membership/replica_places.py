"""Tells the controller in which of its directories this broker's replicas are (AssignReplicasToDirs).

A broker with several directories picks one itself. The controller has to know, or it could not tell whom the
failure of a directory takes out of the ISR. So a replica whose directory fails before that was told is told
of afterwards: the controller then finds that the directory is not in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from ottla.controller.directories import DirectoryAssignment
from ottla.controller.interface import Controller
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.uuids import DIRECTORY_LOST
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

AT_ONCE_MAX = 2250
"""As many as Apache Kafka puts into a request."""
_TOGETHER_SECONDS = 0.05
"""Replicas come in crowds: what is noted so soon after the first goes with it."""
_RETRY_SECONDS = 0.5
# The replica has gone elsewhere meanwhile, or its topic is deleted.
_NEEDLESS = {
    ErrorCode.unknown_topic_id,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
}


class ReplicaPlaces:
    def __init__(
        self,
        clock: Clock,
        controller: Controller,
        metadata: MetadataPublisher,
        broker_id: int,
        broker_epoch: Callable[[], int],
        directory_ids: Mapping[str, UUID],
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._directory_ids = directory_ids
        self._untold: dict[tuple[UUID, int], UUID] = {}
        self._noted = asyncio.Event()
        self._says = Seldom(clock)

    def note(self, topic_id: UUID, partition: int, path: str) -> None:
        """The replica is in that data directory, whether that is in use or has failed."""
        directory = self._directory_ids.get(path)
        if directory is not None and not self._is_known(topic_id, partition, directory):
            self._untold[topic_id, partition] = directory
            self._noted.set()

    def note_lost(self, topic_id: UUID, partition: int) -> None:
        """The files of the replica are gone: it must not lead, and is in sync no more."""
        if not self._is_known(topic_id, partition, DIRECTORY_LOST):
            self._untold[topic_id, partition] = DIRECTORY_LOST
            self._noted.set()

    def _is_known(self, topic_id: UUID, partition: int, directory: UUID) -> bool:
        topic = self._metadata.image.topic_by_id(topic_id)
        state = None if topic is None else topic.partition(partition)
        return state is None or state.directory(self._broker_id) == directory

    async def run(self) -> None:
        while True:
            await self._noted.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._noted.clear()
            while self._untold:
                if not await self._tell():
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _tell(self) -> bool:
        """Whether all that was asked is settled."""
        asked = [
            DirectoryAssignment(directory, *replica)
            for replica, directory in list(self._untold.items())[:AT_ONCE_MAX]
        ]
        try:
            outcomes = await self._controller.assign_directories(self._broker_id, self._broker_epoch(), asked)
        except KafkaError as error:
            self._say(error)
            return False
        settled = True
        for assignment, refusal in outcomes:
            if refusal is not None and refusal.code not in _NEEDLESS:
                self._say(refusal)
                settled = False
            elif self._untold.get(replica := (assignment.topic_id, assignment.partition)) == (
                assignment.directory
            ):
                del self._untold[replica]
        return settled

    def _say(self, error: KafkaError) -> None:
        if self._says.is_due():
            log.warning(
                "the controller could not be told in which directories replicas are: %s; trying again", error
            )
