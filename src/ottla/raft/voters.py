"""Who may vote: the members of the quorum, from the configuration or from the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from kio.schema.voters_record.v0.data import VotersRecord


class ReplicaKey(NamedTuple):
    """A node with its data directory: one that lost its disk is another replica under the same id."""

    id: int
    directory_id: UUID | None = None
    """None where it is not known, as with voters from the configuration."""

    def is_same(self, other: ReplicaKey) -> bool:
        """`self` as somebody knows it; what is not known of the directory matches any."""
        return self.id == other.id and self.directory_id in {None, other.directory_id}


class Listener(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    listeners: tuple[Listener, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0


class VoterSet:
    """Immutable."""

    __slots__ = ("_by_id", "ids")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}
        self.ids = tuple(self._by_id)

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> VoterSet:
        return cls(Voter(ReplicaKey(voter_id)) for voter_id in ids)

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._by_id.values())})"

    @property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(self._by_id.values())

    @property
    def majority(self) -> int:
        return len(self._by_id) // 2 + 1

    def get(self, voter_id: int) -> Voter | None:
        return self._by_id.get(voter_id)

    def includes(self, replica: ReplicaKey) -> bool:
        voter = self._by_id.get(replica.id)
        return voter is not None and voter.key.is_same(replica)

    def is_only(self, replica: ReplicaKey) -> bool:
        return len(self._by_id) == 1 and self.includes(replica)


def voters_in(record: VotersRecord) -> VoterSet:
    """As the log has them."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Listener(each.name, each.host, each.port) for each in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )
