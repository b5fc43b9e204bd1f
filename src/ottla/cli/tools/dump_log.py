"""`kafka-dump-log`: segments, indexes and snapshots as text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show_record
from ottla.cli.framework.tool import Option, Tool

if TYPE_CHECKING:
    from ottla.cli.files.segment_dump import Complaint, Decode
    from ottla.records.records import Record

_EVERYTHING = 2**31 - 1


def run(given: argparse.Namespace) -> int:
    complaints: list[Complaint] = []
    for path in given.files.split(","):
        if not given.json:
            print(f"Dumping {path}")
        try:
            for line in _lines(given, path.strip(), complaints):
                if given.json:
                    show_record({"file": path, "line": line})
                else:
                    print(line)
        except OSError as error:
            raise ToolError(f"{error.filename}: {error.strerror}") from None
        except ValueError as error:
            raise ToolError(f"{path}: {error}") from None
    for complaint in complaints:
        print("\n".join([complaint.title, *complaint.lines]), file=sys.stderr)
    return 0


def _lines(given: argparse.Namespace, path: str, complaints: list[Complaint]) -> Iterator[str]:
    from ottla.cli.files import segment_dump

    suffix = path.rpartition(".")[2]
    if given.index_sanity_check and suffix in {"index", "timeindex"}:
        if not segment_dump.is_sane(path, time=suffix == "timeindex"):
            raise ToolError(f"{path} is corrupt; the broker builds it again at its next start")
        yield f"{path} passed sanity check."
        return
    match suffix:
        case "log" | "checkpoint":
            decode = _decoder(given)
            dump = segment_dump.LogDump(
                path,
                deep=given.deep_iteration or decode is not None,
                decode=decode,
                with_metadata=not given.skip_record_metadata,
                bytes_max=-1 if given.max_bytes == _EVERYTHING else given.max_bytes,
            )
            yield from dump.lines()
            complaints += dump.complaints()
        case "index":
            yield from segment_dump.offset_index_lines(
                path, quiet=given.verify_index_only, complaints=complaints
            )
        case "timeindex":
            yield from segment_dump.time_index_lines(
                path, quiet=given.verify_index_only, complaints=complaints
            )
        case "snapshot":
            yield from segment_dump.producer_snapshot_lines(path, complaints)
        case "txnindex":
            yield from segment_dump.transaction_index_lines(path)
        case _:
            print(f"Ignoring unknown file {path}", file=sys.stderr)


def _decoder(given: argparse.Namespace) -> Decode | None:
    if given.cluster_metadata_decoder:
        return _metadata
    if given.offsets_decoder or given.transaction_log_decoder or given.share_group_state_decoder:
        from ottla.cli.files.coordinator_json import dumped
        from ottla.coordinator import record_json

        decode = record_json.share_state_record
        if given.offsets_decoder:
            decode = record_json.group_record
        elif given.transaction_log_decoder:
            decode = record_json.transaction_record
        return lambda record: dumped(decode, record.key, record.value, record.offset)
    for option in ("key_decoder_class", "value_decoder_class"):
        name = getattr(given, option)
        if name and name.rpartition(".")[2] != "StringDecoder":
            raise ToolError(f"--{option.replace('_', '-')} {name} is unknown; there is only StringDecoder")
    if given.print_data_log or given.key_decoder_class or given.value_decoder_class:
        return _text
    return None


def _text(record: Record) -> tuple[str | None, str | None]:
    return (
        None if record.key is None else record.key.decode("utf-8", "replace"),
        None if record.value is None else record.value.decode("utf-8", "replace"),
    )


def _metadata(record: Record) -> tuple[str | None, str | None]:
    from ottla.metadata.record_json import metadata_json
    from ottla.metadata.records import MetadataRecordError

    try:
        return None, metadata_json(record.value or b"")
    except (MetadataRecordError, IndexError) as error:
        return None, f"Error at {record.offset}, skipping. {error}"


TOOL = Tool(
    name="dump-log",
    description="Print segments, indexes and snapshots as text.",
    run=run,
    options=(
        Option(
            "files",
            "files to print: .log, .index, .timeindex, .snapshot, .checkpoint, .txnindex",
            "FILE,…",
            required=True,
        ),
        Option("print-data-log", "print what records hold"),
        Option("deep-iteration", "print one line for each record, not only for each batch"),
        Option("skip-record-metadata", "print only what records hold"),
        Option("cluster-metadata-decoder", "read records as those of the metadata log"),
        Option("offsets-decoder", "read records as those of __consumer_offsets"),
        Option("transaction-log-decoder", "read records as those of __transaction_state"),
        Option("share-group-state-decoder", "read records as those of __share_group_state"),
        Option("verify-index-only", "check indexes without printing them"),
        Option("index-sanity-check", "check indexes as a broker does when it starts"),
        Option("max-bytes", "read no more than so many bytes of each log", "BYTES", int, default=_EVERYTHING),
        Option("max-message-size", "accepted for compatibility", "BYTES", int),
        Option("key-decoder-class", "the class that reads keys", "CLASS", value_if_bare="StringDecoder"),
        Option("value-decoder-class", "the class that reads values", "CLASS", value_if_bare="StringDecoder"),
    ),
    examples=(
        "--files /var/ottla/orders-0/00000000000000000000.log --print-data-log",
        "--cluster-metadata-decoder --files /var/ottla/__cluster_metadata-0/00000000000000000000.log",
    ),
)
