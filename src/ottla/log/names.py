"""Names of files and directories, the same as Apache Kafka's."""

from __future__ import annotations

from ottla.log.types import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
MOVED_FROM_FILE = "ottla-moved-from"
LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

OFFSET_DIGITS = 20
_FILE_NAME_BYTES_MAX = 255


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """The offset a file is named after, or None when it is no such file."""
    digits = name.removesuffix(suffix)
    if len(digits) != OFFSET_DIGITS or digits == name or not digits.isdecimal():
        return None
    return int(digits)


def partition_in_name(name: str) -> TopicPartition | None:
    """The partition that a directory holds, or None for directories that hold none."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        return None
    return TopicPartition(topic, int(number))


def deleted_dir_name(partition: TopicPartition, unique: int) -> str:
    """`unique` keeps it apart from an earlier topic of the same name that is still being removed."""
    return _out_of_use(partition, unique, DELETED_DIR_SUFFIX)


def stray_dir_name(partition: TopicPartition, unique: int) -> str:
    """For a log that metadata does not know: kept, but not used."""
    return _out_of_use(partition, unique, STRAY_DIR_SUFFIX)


def future_dir_name(partition: TopicPartition, unique: int) -> str:
    """For the copy of a log that is being moved here from another directory."""
    return _out_of_use(partition, unique, FUTURE_DIR_SUFFIX)


def partition_of_future(name: str) -> TopicPartition | None:
    """Whose copy a directory holds. None: it holds none, or the name of its topic was cut short."""
    if not name.endswith(FUTURE_DIR_SUFFIX) or len(name) == _FILE_NAME_BYTES_MAX:
        return None
    return partition_in_name(name.removesuffix(FUTURE_DIR_SUFFIX).rpartition(".")[0])


def _out_of_use(partition: TopicPartition, unique: int, kind: str) -> str:
    suffix = f"-{partition.partition}.{unique:032x}{kind}"
    return partition.topic[: _FILE_NAME_BYTES_MAX - len(suffix)] + suffix
