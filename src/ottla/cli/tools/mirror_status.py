"""`ottla mirror status`: how far each flow is, from what its clusters say."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, columns, show

if TYPE_CHECKING:
    from ottla.mirror.status import FlowStatus

_COLUMNS = ("FLOW", "PARTITION", "TARGET", "MIRRORED", "END", "LAG", "RECORDS/S")


def show_status(given: argparse.Namespace, properties: dict[str, str]) -> int:
    from ottla.client.errors import ClusterUnreachable
    from ottla.client.peer import PeerLost
    from ottla.mirror.errors import SettingError
    from ottla.mirror.settings import read_settings
    from ottla.mirror.status import flow_status
    from ottla.wire.errors import KafkaError

    async def look() -> list[FlowStatus]:
        flows = [flow for flow in read_settings(properties) if flow.replicates]
        return await asyncio.gather(*(flow_status(flow) for flow in flows))

    try:
        found = asyncio.run(look())
    except (SettingError, ClusterUnreachable, PeerLost, KafkaError, ValueError) as error:
        raise ToolError(str(error)) from None
    rows = [row for status in found for row in _rows(status)]
    summaries = [line for status in found for line in _summary(status)]
    show(
        given,
        [_as_json(status) for status in found],
        [*columns([_COLUMNS, *rows]), "", *summaries],
        [Table(_COLUMNS, rows), Table(("",), [(line,) for line in summaries])],
    )
    return 0


def _rows(status: FlowStatus) -> list[Sequence[Any]]:
    return [
        (
            status.name,
            each.partition,
            each.remote,
            each.mirrored,
            *_known(each.end, each.lag),
            f"{each.rate:.0f}",
        )
        for each in status.partitions
    ]


def _known(*numbers: int | None) -> list[int | str]:
    return ["-" if number is None else number for number in numbers]


def _summary(status: FlowStatus) -> list[str]:
    age = status.heartbeat_age_s
    beat = "no heartbeat" if age is None else f"heartbeat {age:.0f} s ago"
    lines = [
        f"{status.name}: {status.lag} behind, {status.rate:.0f} records/s, {beat}, "
        f"{status.processes} process{'' if status.processes == 1 else 'es'}"
    ]
    return lines + [f"{status.name}: out of sync: {line}" for line in status.out_of_sync]


def _as_json(status: FlowStatus) -> dict[str, Any]:
    return {
        "flow": status.name,
        "lag": status.lag,
        "recordsPerSecond": status.rate,
        "processes": status.processes,
        "heartbeatAgeSeconds": status.heartbeat_age_s,
        "outOfSync": list(status.out_of_sync),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.number,
                "targetTopic": each.remote.topic,
                "mirroredOffset": each.mirrored,
                "endOffset": each.end,
                "lag": each.lag,
                "recordsPerSecond": each.rate,
            }
            for each in status.partitions
        ],
    }
