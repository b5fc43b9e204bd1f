"""`kafka-storage`: data directories are given a cluster id before the first start, and inspected."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.files.releases import METADATA_VERSION, RELEASES, level_of
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Command, Option, Tool
from ottla.cli.tools.features import RELEASE_COMMANDS, feature_dependencies, version_mapping

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.config import BrokerConfig
    from ottla.metadata.meta_properties import MetaProperties
    from ottla.raft.voters import VoterSet


def run(given: argparse.Namespace) -> int:
    match given.command:
        case "random-uuid":
            return _random_uuid(given)
        case "info":
            return _info(given)
        case "version-mapping":
            return version_mapping(given)
        case "feature-dependencies":
            return feature_dependencies(given)
        case _:
            return _format(given)


def _random_uuid(given: argparse.Namespace) -> int:
    import random

    from ottla.metadata.uuids import random_uuid, uuid_text

    drawn = uuid_text(random_uuid(random.SystemRandom()))
    show(given, {"uuid": drawn}, [drawn])
    return 0


def _config(given: argparse.Namespace) -> BrokerConfig:
    from ottla.cli.broker.settings import broker_config
    from ottla.config import ConfigError

    try:
        return broker_config(given.config, None, None, ())
    except ConfigError as error:
        raise ToolError(str(error)) from None
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None


def _directories(config: BrokerConfig) -> list[str]:
    return sorted({*config.log_dirs, os.path.abspath(config.metadata_log_dir)})


def _format(given: argparse.Namespace) -> int:
    import random
    import secrets
    import time

    from ottla.cli.files.scram_arguments import scram_record
    from ottla.metadata.bootstrap import write_bootstrap
    from ottla.metadata.features import FEATURES, KRAFT_VERSION
    from ottla.metadata.meta_properties import MetaPropertiesError, examine
    from ottla.metadata.uuids import parse_uuid
    from ottla.raft.formatting import write_bootstrap_snapshot
    from ottla.runtime.disk import PosixDisk

    config = _config(given)
    try:
        parse_uuid(given.cluster_id)
    except ValueError as error:
        raise ToolError(f"--cluster-id: {error}; draw one with kafka-storage random-uuid") from None
    credentials = [scram_record(argument, secrets.token_bytes) for argument in given.add_scram]
    level = next(feature.level_new for feature in FEATURES if feature.name == METADATA_VERSION)
    asked = level_of(given.release_version) if given.release_version else level
    features = {name: value for name, _, value in (text.partition("=") for text in given.feature)}
    if asked != level or features.get(METADATA_VERSION, str(level)) != str(level):
        raise ToolError(f"new clusters have {METADATA_VERSION} {RELEASES[level]} ({level}), no other")
    quorum = _quorum(given, config, features.get(KRAFT_VERSION))

    directories = _directories(config)
    metadata_dir = os.path.abspath(config.metadata_log_dir)
    disk = PosixDisk()
    try:
        before = {directory: _load(directory) for directory in directories}
        formatted = [directory for directory, found in before.items() if found is not None]
        _check_id(before, given.cluster_id)
        if formatted and not given.ignore_formatted:
            raise ToolError(
                f"Log directory {formatted[0]} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
        examined = examine(disk, random.SystemRandom(), directories, config.node_id, given.cluster_id)
        if metadata_dir in examined.new and "controller" in config.strings("process.roles"):
            if quorum.directory_id is not None:
                properties = examined.new[metadata_dir]
                examined.new[metadata_dir] = properties._replace(directory_id=quorum.directory_id)
            # First: a directory with its properties is taken for formatted as a whole.
            now_ms = time.time_ns() // 1_000_000
            write_bootstrap_snapshot(disk, metadata_dir, quorum.kraft_version, quorum.voters, now_ms)
            if credentials:
                write_bootstrap(disk, metadata_dir, credentials, now_ms)
        examined.write_new(disk)
    except MetaPropertiesError as error:
        raise ToolError(str(error)) from None
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None
    new = [directory for directory, found in before.items() if found is None]
    lines = [
        f"Formatting {quorum.kind if directory == metadata_dir else 'data directory'} {directory} with "
        f"{METADATA_VERSION} {RELEASES[level]}."
        for directory in new
    ]
    show(
        given,
        {"clusterId": given.cluster_id, "formatted": new},
        lines or ["All of the log directories are already formatted."],
    )
    return 0


def _check_id(before: Mapping[str, MetaProperties | None], cluster_id: str) -> None:
    """Whoever formatted with the wrong id has to get out of it, and nobody to lose a cluster over it."""
    for directory, found in before.items():
        if found is None or found.cluster_id == cluster_id:
            continue
        raise ToolError(
            f"Log directory {directory} belongs to another cluster: it is formatted with the id "
            f"{found.cluster_id}, not {cluster_id}. If that was a mistake and no broker has used it yet, "
            f"remove it (rm -r {directory}) and format again. If one has, its records are there: use "
            f"--cluster-id {found.cluster_id}, or another directory in log.dirs"
        )


class _Quorum(NamedTuple):
    """What the directory of the metadata log is to say of it."""

    kind: str
    kraft_version: int
    voters: VoterSet
    directory_id: UUID | None = None
    """Of this node, where its voters have been named."""


def _quorum(given: argparse.Namespace, config: BrokerConfig, kraft_version: str | None) -> _Quorum:
    from ottla.raft.voters import VoterSet

    flags = (given.standalone, bool(given.initial_controllers), given.no_initial_controllers)
    if sum(flags) > 1:
        raise ToolError(
            "only one of --standalone, --initial-controllers and --no-initial-controllers can be used"
        )
    if config.quorum_voters and (given.standalone or given.initial_controllers):
        raise ToolError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and "
            "specify controller.quorum.bootstrap.servers instead."
        )
    is_controller = "controller" in config.strings("process.roles")
    listeners = config.advertised_controller_listeners
    # A node that no other can reach needs no quorum to grow.
    is_dynamic = not config.quorum_voters and (bool(listeners) or not is_controller)
    if kraft_version not in {None, str(int(is_dynamic))}:
        raise ToolError(
            f"Cannot set kraft.version to {kraft_version}: it is 1 where controller.quorum.voters is empty "
            "and there is a listener of controller.listener.names, else 0"
        )
    if is_controller and is_dynamic and not any(flags):
        raise ToolError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the "
            "following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    if given.initial_controllers:
        voters = _initial_voters(given, config)
        own = voters.get(config.node_id)
        if own is not None:
            return _Quorum("dynamic metadata voter directory", 1, voters, own.key.directory_id)
        return _Quorum("dynamic metadata directory", 1, voters)
    if given.standalone:
        if not is_controller:
            raise ToolError("You can only use --standalone on a controller.")
        voters = _standalone(config) if listeners else VoterSet()
        directory_id = voters.voters[0].key.directory_id if listeners else None
        return _Quorum("dynamic metadata voter directory", int(is_dynamic), voters, directory_id)
    return _Quorum("metadata directory", int(is_dynamic), VoterSet())


def _initial_voters(given: argparse.Namespace, config: BrokerConfig) -> VoterSet:
    from ottla.raft.formatting import parse_initial_voters

    listener = config.strings("controller.listener.names")[0].upper()
    try:
        return parse_initial_voters(given.initial_controllers, listener)
    except ValueError as error:
        raise ToolError(f"--initial-controllers: {error}") from None


def _standalone(config: BrokerConfig) -> VoterSet:
    import random

    from ottla.config.listeners import ANY_HOST
    from ottla.metadata.uuids import random_uuid
    from ottla.raft.voters import SUPPORTED, Listener, ReplicaKey, Voter, VoterSet

    endpoint = config.advertised_controller_listeners[0]
    host = "localhost" if endpoint.host in ANY_HOST else endpoint.host
    key = ReplicaKey(config.node_id, random_uuid(random.SystemRandom()))
    return VoterSet([Voter(key, (Listener(endpoint.listener, host, endpoint.port),), SUPPORTED)])


def _load(directory: str) -> MetaProperties | None:
    from ottla.metadata.meta_properties import load
    from ottla.runtime.disk import PosixDisk

    return load(PosixDisk(), directory)


def _info(given: argparse.Namespace) -> int:
    from ottla.metadata.meta_properties import MetaPropertiesError
    from ottla.metadata.uuids import uuid_text

    found: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for directory in _directories(_config(given)):
        if not os.path.isdir(directory):
            missing = not os.path.exists(directory)
            problems.append(f"{directory} {'does not exist' if missing else 'is not a directory'}")
            continue
        found.append(directory)
        try:
            properties = _load(directory)
        except (MetaPropertiesError, OSError) as error:
            problems.append(f"Error loading {directory}: {error}")
            continue
        if properties is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = properties
        elif first.cluster_id != properties.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != properties.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    metadata = (
        {
            "cluster.id": first.cluster_id,
            "directory.id": uuid_text(first.directory_id),
            "node.id": str(first.node_id),
            "version": "1",
        }
        if first is not None
        else None
    )
    lines: list[str] = []
    if found:
        title = "Found log directory:" if len(found) == 1 else "Found log directories:"
        lines += [title, *(f"  {directory}" for directory in found), ""]
    if metadata is not None:
        pairs = ", ".join(f"{key}={value}" for key, value in metadata.items())
        lines += [f"Found metadata: {{{pairs}}}", ""]
    if problems:
        title = "Found problem:" if len(problems) == 1 else "Found problems:"
        lines += [title, *(f"  {problem}" for problem in problems), ""]
    show(given, {"directories": found, "metadata": metadata, "problems": problems}, lines)
    return 1 if problems else 0


_CONFIG = Option("config", "the broker's properties file", "FILE", required=True, short="-c")

TOOL = Tool(
    name="storage",
    description="Prepare and inspect the data directories of a broker.",
    run=run,
    options=(),
    commands=(
        Command(
            "format",
            "give the data directories an id, before the first start",
            (
                _CONFIG,
                Option("cluster-id", "the cluster's id", "ID", required=True, short="-t"),
                Option(
                    "standalone", "for a quorum of this node alone, to which others may be added", short="-s"
                ),
                Option("no-initial-controllers", "for a node that is to join a quorum there is", short="-N"),
                Option(
                    "initial-controllers",
                    "the quorum's first voters, as id@host:port:directory-id separated by commas",
                    "VOTERS",
                    short="-I",
                ),
                Option("ignore-formatted", "skip directories that are formatted already", short="-g"),
                Option("release-version", "the release whose features to begin with", "RELEASE", short="-r"),
                Option(
                    "feature", "the level of a feature to begin with", "NAME=LEVEL", repeats=True, short="-f"
                ),
                Option(
                    "add-scram",
                    "a credential to begin with, as SCRAM-SHA-512=[name=alice,password=…]",
                    "CREDENTIAL",
                    repeats=True,
                    short="-S",
                ),
            ),
        ),
        Command("info", "show what the data directories are", (_CONFIG,)),
        *RELEASE_COMMANDS,
        Command("random-uuid", "draw an id"),
    ),
    examples=("random-uuid", "format --standalone -t 4L6g3nShT-eMCtK--X86sw -c server.properties"),
)
