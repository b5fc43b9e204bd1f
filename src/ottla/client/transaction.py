"""A producer's transactions with a cluster, in the protocol that every broker since 0.11 speaks.

Each transaction gets an epoch of its own, so whatever a lost request or a process thought dead still sends
for an earlier one is refused. That is also what makes the older form of the protocol safe: a delayed
EndTxn cannot end a later transaction than the one it was meant for. Clusters with version 2 of transactions
(KIP-890) give the next epoch with the end of a transaction, others have to be asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.cluster import GROUP, TRANSACTION, ClusterClient
from ottla.client.errors import error_for
from ottla.records.producer import NOBODY, ProducerIdentity
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

TRANSACTION_TIMEOUT_MS: Final = 300_000

# Newer versions leave it to the broker to add partitions and groups, which older brokers cannot.
_ADD_PARTITIONS_VERSION: Final = 3
_TXN_OFFSET_COMMIT_VERSION: Final = 4
_END_VERSION: Final = 4
# Gives the epoch of the next transaction, where the cluster has agreed on it.
_END_WITH_EPOCH_VERSION: Final = 5
_TRANSACTION_FEATURE: Final = "transaction.version"
_FIRST_WITH_EPOCHS: Final = 2
# The last version that names topics rather than their ids.
_OFFSET_FETCH_VERSION: Final = 9


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str


async def new_producer(cluster: ClusterClient) -> ProducerIdentity:
    """For batches outside transactions: sequence numbers keep a resend from becoming a duplicate."""
    values = {"transactional_id": None, "transaction_timeout": TRANSACTION_TIMEOUT_MS}
    answer = await cluster.ask(
        None, ApiKey.INIT_PRODUCER_ID, values | {"producer_id": NOBODY.id, "producer_epoch": NOBODY.epoch}
    )
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


async def add_partitions(
    cluster: ClusterClient,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Iterable[tuple[str, int]],
) -> None:
    """Announces partitions before the first batch goes to them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    values = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()],
    }

    def check(answer: Any) -> None:
        refused = [
            (topic.name, row)
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code != ErrorCode.none
        ]
        # Where one cannot be added none is; the others say only that.
        refused.sort(key=lambda entry: entry[1].partition_error_code == ErrorCode.operation_not_attempted)
        if refused:
            topic, row = refused[0]
            about = f"add {topic}-{row.partition_index} to the transaction of {transactional_id}"
            raise error_for(row.partition_error_code, None, about)

    await cluster.ask_coordinator(
        TRANSACTION,
        transactional_id,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        values,
        check,
        version_max=_ADD_PARTITIONS_VERSION,
    )


class Transactions:
    """One after the other: `begin`, then `commit` or `abort`."""

    def __init__(
        self,
        cluster: ClusterClient,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer = NOBODY

    async def begin(self) -> ProducerIdentity:
        """Ends what is open under this id, and shuts out everybody who has used it before.

        The first call of a process takes the id over from whoever has it. Later calls name the epoch they
        had: who was shut out in the meantime gets ProducerFenced instead of taking the id back.
        """
        try:
            self._producer = await self._init(self._producer)
        except KafkaError as error:
            # Unused for a week the id is forgotten, and with it nobody is left to shut out.
            if error.code != ErrorCode.invalid_producer_id_mapping or self._producer == NOBODY:
                raise
            self._producer = await self._init(NOBODY)
        return self._producer

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset]) -> bool:
        """What was produced and these offsets of the group take effect together. As `end`."""
        if offsets:
            await self.announce_offsets(group)
            await self.send_offsets(group, offsets)
        return await self.end()

    async def announce_offsets(self, group: str) -> None:
        """Makes the offsets of a group part of the transaction, before they are sent."""
        await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, self._named() | {"group_id": group})

    async def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
        await self._commit_offsets(group, offsets, self._named())

    async def end(self) -> bool:
        """Commit. Whether the next transaction has begun with it, under an epoch of its own: `producer` has
        it then. Else `begin` gives one."""
        gives_epoch = await self._gives_epochs()
        version = _END_WITH_EPOCH_VERSION if gives_epoch else _END_VERSION
        answer = await self._ask(ApiKey.END_TXN, self._named() | {"committed": True}, version_max=version)
        if not gives_epoch or answer.producer_id < 0:
            return False
        self._producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        return True

    @property
    def producer(self) -> ProducerIdentity:
        return self._producer

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self._producer.id,
            "producer_epoch": self._producer.epoch,
        }

    async def _gives_epochs(self) -> bool:
        peer = await self._cluster.retried(
            lambda: self._cluster.coordinator(TRANSACTION, self.transactional_id)
        )
        features = getattr(peer.api_versions, "finalized_features", ())
        return peer.version(ApiKey.END_TXN, _END_WITH_EPOCH_VERSION) >= _END_WITH_EPOCH_VERSION and any(
            each.name == _TRANSACTION_FEATURE and each.max_version_level >= _FIRST_WITH_EPOCHS
            for each in features
        )

    async def abort(self) -> None:
        """By a new epoch, so that writers which do not know of it yet cannot start over in the old one."""
        await self.begin()

    async def committed_offsets(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        """All the group has; waits for offsets that are part of an open transaction."""
        values = {"groups": [{"group_id": group, "topics": None}], "require_stable": True}

        def check(answer: Any) -> None:
            row = answer.groups[0]
            codes = [row.error_code, *(p.error_code for topic in row.topics for p in topic.partitions)]
            for code in codes:
                if code != ErrorCode.none:
                    raise error_for(code, None, f"offsets of group {group}")

        answer = await self._cluster.ask_coordinator(
            GROUP, group, ApiKey.OFFSET_FETCH, values, check, version_max=_OFFSET_FETCH_VERSION
        )
        return {
            (topic.name, row.partition_index): CommittedOffset(row.committed_offset, row.metadata or "")
            for topic in answer.groups[0].topics
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    async def _init(self, known: ProducerIdentity) -> ProducerIdentity:
        answer = await self._ask(
            ApiKey.INIT_PRODUCER_ID,
            {
                "transactional_id": self.transactional_id,
                "transaction_timeout": self._timeout_ms,
                "producer_id": known.id,
                "producer_epoch": known.epoch,
            },
        )
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self, api_key: ApiKey, values: Mapping[str, Any], *, version_max: int | None = None
    ) -> Any:
        return await self._cluster.ask_coordinator(
            TRANSACTION, self.transactional_id, api_key, values, version_max=version_max
        )

    async def _commit_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        values: Mapping[str, Any],
    ) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), (offset, metadata) in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
            )

        def check(answer: Any) -> None:
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code != ErrorCode.none:
                        about = f"commit of {topic.name}-{row.partition_index} for group {group}"
                        raise error_for(row.error_code, None, about)

        await self._cluster.ask_coordinator(
            GROUP,
            group,
            ApiKey.TXN_OFFSET_COMMIT,
            {
                **values,
                "group_id": group,
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
            },
            check,
            version_max=_TXN_OFFSET_COMMIT_VERSION,
        )
