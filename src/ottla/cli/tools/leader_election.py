"""`kafka-leader-election`: partitions are led by their preferred replica again, or by any that is left."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError, code_name
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.client.admin.topics import Partition

_KINDS = ("preferred", "unclean")
_WHICH = ("topic", "all-topic-partitions", "path-to-json-file")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.replicas import elect_leaders
    from ottla.wire.errors import ErrorCode

    partitions = _wanted(given)
    if given.admin_config:
        if given.command_config:
            raise ToolError("--admin.config and --command-config cannot be specified together.")
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        given.command_config = given.admin_config
    kind = given.election_type.lower()
    with cluster(given) as admin:
        results = admin.call(elect_leaders, _KINDS.index(kind), partitions)
    elected = [str(partition) for partition, error in results.items() if error is None]
    failed = {
        str(partition): error
        for partition, error in results.items()
        if error is not None and error.code != ErrorCode.election_not_needed
    }
    unneeded = [str(each) for each in results if str(each) not in failed and str(each) not in elected]
    lines = []
    if elected:
        names = ", ".join(elected)
        lines.append(f"Successfully completed leader election ({kind.upper()}) for partitions {names}")
    if unneeded:
        lines.append(f"Valid replica already elected for partitions {', '.join(unneeded)}")
    lines += [
        f"Error completing leader election ({kind.upper()}) for partition: {partition}: "
        f"{code_name(error.code)}: {error.message}"
        for partition, error in failed.items()
    ]
    faults = {partition: f"{code_name(error.code)}: {error.message}" for partition, error in failed.items()}
    show(given, {"elected": elected, "unneeded": unneeded, "failed": faults}, lines)
    if failed:
        print(f"{given.prog}: {len(failed)} replica(s) could not be elected", file=sys.stderr)
    return 1 if failed else 0


def _wanted(given: argparse.Namespace) -> list[Partition] | None:
    """None for all."""
    from ottla.client.admin.topics import Partition

    chosen = [name for name in _WHICH if getattr(given, name.replace("-", "_")) not in {None, False}]
    if len(chosen) != 1:
        raise ToolError(f"One and only one of the following options is required: {', '.join(_WHICH)}")
    if given.topic is not None and given.partition is None:
        raise ToolError("Missing required option(s): partition")
    if given.topic is None and given.partition is not None:
        raise ToolError("Option partition is only allowed if topic is used")
    if given.topic is not None:
        return [Partition(given.topic, given.partition)]
    return None if given.all_topic_partitions else _read(given.path_to_json_file)


def _read(path: str) -> list[Partition]:
    from ottla.client.admin.topics import Partition

    try:
        with open(path) as file:
            data = json.load(file)
        partitions = [Partition(str(item["topic"]), int(item["partition"])) for item in data["partitions"]]
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ToolError(
            f'{path}: must be JSON such as {{"partitions": [{{"topic": "foo", "partition": 1}}]}}'
        ) from None
    if twice := sorted({each for each in partitions if partitions.count(each) > 1}):
        names = ",".join(map(str, twice))
        raise ToolError(f"{path}: Replica election data contains duplicate partitions: {names}")
    return partitions


def _kind(text: str) -> str:
    if text.lower() not in _KINDS:
        raise argparse.ArgumentTypeError(f"{text}: must be preferred or unclean")
    return text


TOOL = Tool(
    name="leader-election",
    description="Elect leaders of partitions: the preferred ones, or any where no replica in sync is left.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("admin.config", "the old name of --command-config", "FILE"),
        Option(
            "election-type",
            "preferred: the first replica leads again, if it is in sync; unclean: one that is not in sync "
            "leads where nobody does, and records are lost",
            "TYPE",
            _kind,
            required=True,
        ),
        Option("topic", "of this topic, with --partition", "TOPIC"),
        Option("partition", "the partition's number", "NUMBER", int),
        Option("all-topic-partitions", "of all partitions that need it"),
        Option(
            "path-to-json-file",
            'of those in a file: {"partitions": [{"topic": "foo", "partition": 1}]}',
            "FILE",
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --election-type preferred --all-topic-partitions",
        "--bootstrap-server localhost:9092 --election-type unclean --topic orders --partition 0",
    ),
)
