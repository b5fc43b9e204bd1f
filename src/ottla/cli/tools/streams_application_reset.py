"""`kafka-streams-application-reset`: an application starts anew, as if it had never run."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import time
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.topics import Partition

# As Kafka's tool knows them: changelogs, repartition topics, and those of foreign-key joins.
_INTERNAL = re.compile(
    r".+-(changelog|repartition|subscription-registration-topic|subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)
_SCENARIOS = ("to_offset", "shift_by", "to_datetime", "by_duration", "to_earliest", "to_latest", "from_file")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.topics import delete_topics

    chosen = [name for name in _SCENARIOS if getattr(given, name) not in {None, False}]
    if len(chosen) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise ToolError(f"{options} cannot be used together")
    application = given.application_id
    with cluster(given) as admin:
        groups = _groups(admin, application, forced=given.force)
        offsets = _reset(given, admin, groups, chosen[0] if chosen else "to_earliest")
        internal = _internal_topics(given, admin)
        if internal and not given.dry_run:
            admin.call(delete_topics, internal)
    directory = f"{given.state_dir or os.path.expanduser('~/.ottla/streams')}/{application}"
    has_state = os.path.isdir(directory)
    if has_state and not given.dry_run:
        shutil.rmtree(directory)
    begin = "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
    lines = [begin] if given.dry_run else []
    for group, places in offsets.items():
        lines.append(f"Following input topics offsets will be reset to (for consumer group {group})")
        lines += [
            f"Topic: {place.topic} Partition: {place.number} Offset: {to}" for place, to in places.items()
        ]
    lines += ["Deleting inferred internal topics " + str(internal)] if internal else []
    lines += [f"Deleting state and progress in {directory}"] if has_state else []
    lines.append("Done.")
    data = {
        "offsets": {
            group: {str(place): to for place, to in places.items()} for group, places in offsets.items()
        },
        "deletedTopics": internal,
        "deletedState": directory if has_state else None,
        "dryRun": given.dry_run,
    }
    show(given, data, lines)
    return 0


def _groups(admin: Admin, application: str, *, forced: bool) -> list[str]:
    """The group of each query: the application's id and a name. Applications of Kafka Streams have one, with
    the id alone."""
    from ottla.client.admin.groups import describe_group, list_groups

    groups = [listed.id for listed in admin.call(list_groups) if listed.id.partition(":")[0] == application]
    for group in groups:
        members = admin.call(describe_group, group).members
        if members and not forced:
            raise ToolError(
                f"Consumer group '{group}' is still active and has following members: "
                f"{', '.join(member.id for member in members)}. Make sure to stop all running application "
                "instances before running the reset tool. You can use option '--force' to remove active "
                "members from the group."
            )
    return groups


def _reset(
    given: argparse.Namespace, admin: Admin, groups: list[str], how: str
) -> dict[str, dict[Partition, int]]:
    from ottla.cli.cluster.offset_reset import new_offsets
    from ottla.client.admin.groups import commit_offsets, committed_offsets

    topics = [name for text in given.input_topics for name in text.split(",") if name]
    now_ms = time.time_ns() // 1_000_000
    resets: dict[str, dict[Partition, int]] = {}
    for group in groups if topics else ():
        known = {place: found.offset for place, found in admin.call(committed_offsets, group).items()}
        given.topic, given.all_topics = sorted({place.topic for place in known} & set(topics)), False
        if not given.topic:
            continue
        resets[group] = new_offsets(given, admin, group, how, now_ms, known)
        if not given.dry_run:
            admin.call(commit_offsets, group, resets[group])
    missing = sorted(set(topics) - {place.topic for places in resets.values() for place in places})
    if missing:
        raise ToolError(
            f"the application {given.application_id} has no offsets of the topic {missing[0]}; "
            "give the topics that it reads as --input-topics"
        )
    return resets


def _internal_topics(given: argparse.Namespace, admin: Admin) -> list[str]:
    from ottla.client.admin.groups import list_groups
    from ottla.client.admin.topics import list_topics

    begin = f"{given.application_id}-"
    present = [
        name for name in admin.call(list_topics) if name.startswith(begin) and _INTERNAL.fullmatch(name)
    ]
    asked = [name for text in given.internal_topics for name in text.split(",") if name]
    if unknown := sorted(set(asked) - set(present)):
        raise ToolError(f"--internal-topics {unknown[0]}: is no internal topic of {given.application_id}")
    # The topics of an application "app-1" begin like those of "app".
    others = {listed.id.partition(":")[0] for listed in admin.call(list_groups)}
    longer = tuple(f"{other}-" for other in others if other.startswith(begin))
    return sorted(asked or (name for name in present if not name.startswith(longer)))


TOOL = Tool(
    name="streams-application-reset",
    description=(
        "Let a streams application start anew: the offsets of its input topics are set, its internal topics\n"
        "and its state deleted. What it wrote to output topics stays. Stop the application first."
    ),
    run=run,
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT", default="localhost:9092"),
        COMMAND_CONFIG,
        Option("application-id", "the application", "ID", required=True),
        Option("input-topics", "topics that it reads, separated by commas", "TOPICS", repeats=True),
        Option("internal-topics", "delete only these of its internal topics", "TOPICS", repeats=True),
        Option("state-dir", "where its state is (default: ~/.ottla/streams)", "DIR"),
        Option("to-earliest", "read the input topics from the beginning; the default"),
        Option("to-latest", "read only what comes from now on"),
        Option("to-offset", "read from an offset", "OFFSET", parse=int),
        Option("to-datetime", "read from a time on", "YYYY-MM-DDTHH:mm:SS.sss"),
        Option("by-duration", "read from so long ago on", "PnDTnHnMnS"),
        Option("shift-by", "read so many records later, or earlier if negative", "N", parse=int),
        Option("from-file", "read from the offsets of a file with lines topic,partition,offset", "FILE"),
        Option("force", "also while the group has members"),
        Option("dry-run", "only show what would be done"),
    ),
    examples=("--application-id word-count --input-topics lines",),
)
