"""`kafka-delete-records`: the oldest records of partitions go, up to an offset each."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError, code_name
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.client.admin.topics import Partition


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.topics import delete_records
    from ottla.wire.errors import KafkaError

    wanted = _read(given.offset_json_file)
    rows: list[tuple[str, int, str]] = []
    with cluster(given) as admin:
        for partition, found in admin.call(delete_records, wanted).items():
            low, error = (-1, code_name(found.code)) if isinstance(found, KafkaError) else (found, "")
            rows.append((str(partition), low, error))
    rows.sort()
    lines = ["Executing records delete operation", "Records delete operation completed:"]
    lines += [
        f"partition: {name}\terror: {error}" if error else f"partition: {name}\tlow_watermark: {low}"
        for name, low, error in rows
    ]
    data = [{"partition": name, "lowWatermark": low, "error": error or None} for name, low, error in rows]
    show(given, data, lines, [Table(("Partition", "Low watermark", "Error"), rows)])
    return 0


def _read(path: str) -> dict[Partition, int]:
    from ottla.client.admin.topics import Partition

    try:
        with open(path) as file:
            content: Any = json.load(file)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict) or "partitions" not in content:
        raise ToolError(f"{path}: Missing partitions field")
    if content.get("version", 1) != 1:
        raise ToolError(f"{path}: Not supported version field value {content['version']}")
    wanted: dict[Partition, int] = {}
    for item in content["partitions"]:
        try:
            partition, offset = Partition(str(item["topic"]), int(item["partition"])), int(item["offset"])
        except (TypeError, KeyError, ValueError):
            raise ToolError(f"{path}: {item} must have topic, partition and offset") from None
        if partition in wanted:
            raise ToolError(f"Offset json file contains duplicate topic partitions: {partition}")
        wanted[partition] = offset
    return wanted


TOOL = Tool(
    name="delete-records",
    description="Delete the records of partitions before an offset.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option(
            "offset-json-file",
            'where to delete up to: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], '
            '"version": 1}; offset -1 deletes all',
            "FILE",
            required=True,
        ),
    ),
    examples=("--bootstrap-server localhost:9092 --offset-json-file offsets.json",),
)
