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


class KRaftVersions(NamedTuple):
    """Levels of `kraft.version` that a node can work with. 1 takes the voters from the log (KIP-853)."""

    min: int = 0
    max: int = 0

    def include(self, version: int) -> bool:
        return self.min <= version <= self.max


SUPPORTED = KRaftVersions(0, 1)


class Voter(NamedTuple):
    key: ReplicaKey
    listeners: tuple[Listener, ...] = ()
    kraft_versions: KRaftVersions = KRaftVersions()


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

    def having(self, voter: Voter) -> VoterSet:
        """In place of the one with the same id, where there is one."""
        return VoterSet([*(each for each in self.voters if each.key.id != voter.key.id), voter])

    def without(self, voter_id: int) -> VoterSet:
        return VoterSet(each for each in self.voters if each.key.id != voter_id)


def voters_in(record: VotersRecord) -> VoterSet:
    """As the log has them."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Listener(each.name, each.host, each.port) for each in voter.endpoints),
            KRaftVersions(
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )


def record_of(voters: VoterSet) -> VotersRecord:
    """As the log is to have them."""
    from kio.schema.types import BrokerId
    from kio.schema.voters_record.v0 import data
    from kio.static.primitive import i16, u16

    return data.VotersRecord(
        version=i16(0),
        voters=tuple(
            data.Voter(
                voter_id=BrokerId(voter.key.id),
                voter_directory_id=voter.key.directory_id,
                endpoints=tuple(
                    data.Endpoint(name=each.name, host=each.host, port=u16(each.port))
                    for each in voter.listeners
                ),
                k_raft_version_feature=data.KRaftVersionFeature(
                    min_supported_version=i16(voter.kraft_versions.min),
                    max_supported_version=i16(voter.kraft_versions.max),
                ),
            )
            for voter in voters.voters
        ),
    )
