"""What can go wrong in a Streams application, each with a text that names the input and the remedy."""

from __future__ import annotations


class StreamsError(Exception):
    """Base of every error the Streams API raises."""


class TopologyError(StreamsError):
    """The program describes a topology that cannot exist."""


class SerdeError(StreamsError):
    """A value cannot be written with its serde, or bytes cannot be read with it."""


class RecordError(StreamsError):
    """Work on one record failed: the text names the record, ``__cause__`` says why."""

    def __init__(self, text: str, *, node: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(text)
        self.text = text
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset

    # Arguments are keywords, which pickle only carries across processes when told how.
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.text, self.node, self.topic, self.partition, self.offset)


def _rebuild(text: str, node: str, topic: str, partition: int, offset: int) -> RecordError:
    return RecordError(text, node=node, topic=topic, partition=partition, offset=offset)


class StoreError(StreamsError):
    """A state store is used in a way it does not offer."""
