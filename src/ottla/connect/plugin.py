"""What one writes to add a connector, a converter, a transform or a predicate.

A connector is written in one of two ways:

- on Spark (`SparkSource`, `SparkSink`): a source gives a streaming DataFrame, a sink takes a DataFrame per
  micro-batch. No Python object per record.
- record by record (`SourceConnector` with a `SourceTask`, `SinkConnector` with a `SinkTask`), as in Kafka
Connect.

All declare their settings in `settings`, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ottla import __version__
from ottla.connect.columns import Column, SinkColumns, SourceColumns
from ottla.connect.data import Schema, SchemaAndValue
from ottla.connect.records import ConnectRecord, Header, SinkRecord, SourceRecord
from ottla.connect.settings.definition import Settings

Config = Mapping[str, str]
Partition = tuple[str, int]


class Plugin:
    """Anything a configuration can name."""

    settings: ClassVar[Settings] = Settings()
    version: ClassVar[str] = __version__


# Connectors


class Connector(Plugin, ABC):
    """Lives while its connector runs, beside the tasks; may look out for changes and ask for other tasks."""

    guarantee: ClassVar[str] = ""
    """How often a record arrives (at least once, exactly once) and why; for the reference."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.given: Config = {}

    def start(self, given: Config) -> None:
        """Raises what is wrong with the outside world; the connector is FAILED then."""
        self.given = given
        self.config = self.settings.parse(given)

    def stop(self) -> None:
        """Lets go of what `start` took."""

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        """What is wrong with values that are right by themselves, by setting."""
        return {}

    @abstractmethod
    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        """The work divided, into `tasks_max` parts at most."""

    @classmethod
    @abstractmethod
    def task_name(cls) -> str:
        """What `task.class` says."""


class SourceConnector(Connector):
    task_class: ClassVar[type[SourceTask]]

    @classmethod
    def task_name(cls) -> str:
        return f"{cls.task_class.__module__}.{cls.task_class.__qualname__}"

    def is_exactly_once(self, given: Config) -> bool:
        """Whether going on from a stored offset neither loses nor repeats anything."""
        return False

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Raises ConnectError for offsets that the connector could not go on from."""


class SinkConnector(Connector):
    task_class: ClassVar[type[SinkTask]]

    @classmethod
    def task_name(cls) -> str:
        return f"{cls.task_class.__module__}.{cls.task_class.__qualname__}"


# Record by record


class SourceContext(Protocol):
    """What a source task may ask of its worker."""

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was stored for a source partition."""

    def wait(self, seconds: float) -> bool:
        """Until then, or until the task is to stop: then True."""

    def commit_soon(self) -> None:
        """Asks for `commit` right after the records of this `poll` are written, not at the next interval."""


class SourceTask(ABC):
    context: SourceContext

    @abstractmethod
    def start(self, given: Config) -> None: ...

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | SourceColumns:
        """What is new. Waits briefly with `context.wait` where there is nothing, and returns then.

        As columns it costs no Python object per record, where converters and transforms do without, too.
        """

    def commit(self) -> None:  # noqa: B027
        """All records given so far are in their topics, and their offsets are stored."""

    def stop(self) -> None:  # noqa: B027
        """Lets go of what `start` took."""


class SinkContext(Protocol):
    def report(self, record: SinkRecord, error: Exception) -> None:
        """A record that cannot be written goes where `errors.*` say; raises where errors are not
        tolerated."""

    def wait(self, seconds: float) -> bool: ...


class SinkTask(ABC):
    context: SinkContext

    @abstractmethod
    def start(self, given: Config) -> None: ...

    takes_columns = False
    """Whether `put_columns` is called where nobody wants records; known when `start` returns."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """RetriableError: the same records come again, after a while."""

    def put_columns(self, records: SinkColumns) -> None:
        """As `put`, of many records of one partition. After any DataError the same records come to `put`, so
        none of them may have been taken."""
        raise NotImplementedError

    def open(self, partitions: Collection[Partition]) -> None:  # noqa: B027
        """Partitions that come to this task."""

    def close(self, partitions: Collection[Partition]) -> None:  # noqa: B027
        """Partitions that leave it."""

    def flush(self) -> None:  # noqa: B027
        """What `put` has taken is to be durable when this returns; then its offsets are committed."""

    def stop(self) -> None:  # noqa: B027
        """Lets go of what `start` took."""


# On Spark


class SparkSource(SourceConnector):
    """A source as a streaming DataFrame."""

    task_class: ClassVar[Any] = None

    @classmethod
    def task_name(cls) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        """One streaming query; what is done in parallel inside of it is Spark's business."""
        return [self.given]

    @abstractmethod
    def read(self, session: Any) -> Any:
        """A streaming DataFrame with a column `value` and, if there are any, `key`, `topic`, `partition`,
        `timestamp` and `headers`. Structs are written by the converters."""


class SparkSink(SinkConnector):
    task_class: ClassVar[Any] = None
    query_id = ""
    """Known when `write` is called: the same over restarts, another one when offsets are reset."""

    @classmethod
    def task_name(cls) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given]

    def trigger(self) -> Mapping[str, Any]:
        """When there is a micro-batch, as Spark's `trigger` takes it; as soon as the last is done without."""
        return {}

    def read_options(self) -> Mapping[str, str]:
        """Of the source on Spark that reads the topics, such as maxOffsetsPerTrigger."""
        return {}

    @abstractmethod
    def write(self, batch: Any, batch_id: int) -> None:
        """A DataFrame of key, value, topic, partition, offset, timestamp and headers.

        After a failure the same batch comes again, with the same number and the same rows.
        """


# Converters, transforms, predicates

Value = TypeVar("Value")


class Converter(Plugin, ABC):
    """Bytes of a topic to and from values with schemas."""

    def __init__(self, given: Config) -> None:
        self.config = self.settings.parse(given)

    @abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None: ...

    @abstractmethod
    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue: ...

    def columns_to_bytes(self, topic: str, column: Column) -> Any:
        """What `to_bytes` makes of all of them, as a pa.BinaryArray; None where it has to be asked for each,
        as after any error."""
        return None

    def columns_from_bytes(self, topic: str, array: Any) -> Column | None:
        """What `from_bytes` makes of each of a pa.BinaryArray; None as above."""
        return None


class HeaderConverter(Plugin, ABC):
    def __init__(self, given: Config) -> None:
        self.config = self.settings.parse(given)

    @abstractmethod
    def header_to_bytes(self, topic: str, header: Header) -> bytes | None: ...

    @abstractmethod
    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> Header: ...


AnyRecord = TypeVar("AnyRecord", bound=ConnectRecord)


class Transform(Plugin, ABC, Generic[AnyRecord]):
    def __init__(self, given: Config) -> None:
        self.config = self.settings.parse(given)

    @abstractmethod
    def apply(self, record: AnyRecord) -> AnyRecord | None:
        """None drops the record."""

    def apply_columns(self, records: SourceColumns) -> SourceColumns | None:
        """What `apply` makes of each of them; None where it has to be asked for each."""
        return None


class Predicate(Plugin, ABC):
    def __init__(self, given: Config) -> None:
        self.config = self.settings.parse(given)

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool: ...

    def test_columns(self, records: SourceColumns) -> bool | None:
        """What `test` says of all of them; None where it has to be asked for each."""
        return None
