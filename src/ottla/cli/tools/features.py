"""`kafka-features`: the features a cluster has agreed on, those its brokers could, and changes of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ottla.cli.files.releases import (
    FEATURE_NAMES,
    METADATA_VERSION,
    RELEASES,
    default_levels,
    dependencies,
    level_of,
    level_text,
)
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, show, warn
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Command, Option, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.cluster.admin import Admin

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_LEVEL_MAX = 32767


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    match given.command:
        case "version-mapping":
            return version_mapping(given)
        case "feature-dependencies":
            return feature_dependencies(given)
    with cluster(given) as admin:
        if given.command == "describe":
            _describe(given, admin)
        else:
            _update(given, admin)
    return 0


def _describe(given: argparse.Namespace, admin: Admin) -> None:
    answer = admin.peer(given.node_id).api_versions
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    epoch = answer.finalized_features_epoch
    rows = [
        (
            feature.name,
            level_text(feature.name, feature.min_version),
            level_text(feature.name, feature.max_version),
            level_text(feature.name, finalized.get(feature.name, 0)),
            str(epoch) if epoch >= 0 else "-",
        )
        for feature in sorted(answer.supported_features, key=lambda feature: feature.name)
    ]
    lines = [
        f"Feature: {name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}  "
        f"FinalizedVersionLevel: {level:<15}  Epoch: {at}"
        for name, low, high, level, at in rows
    ]
    data = [
        {"feature": name, "supportedMin": low, "supportedMax": high, "finalized": level, "epoch": at}
        for name, low, high, level, at in rows
    ]
    show(given, data, lines, [Table(("Feature", "Supported from", "to", "Finalized", "Epoch"), rows)])


def _update(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.cli.framework.errors import Refused
    from ottla.wire.api import ApiKey

    levels = _levels(given, admin)
    if not levels:
        raise ToolError(f"You must specify at least one feature to {given.command}")
    kind = _UPGRADE
    if given.command != "upgrade":
        kind = _UNSAFE_DOWNGRADE if given.unsafe else _SAFE_DOWNGRADE
    problem: str | None = None
    try:
        admin.ask(
            ApiKey.UPDATE_FEATURES,
            {
                "timeout": admin.request_timeout_ms,
                "feature_updates": [
                    {"feature": name, "max_version_level": level, "upgrade_type": kind}
                    for name, level in levels.items()
                ],
                "validate_only": given.dry_run,
            },
        )
    except Refused as error:
        problem = error.reason
    show(
        given,
        {"updates": levels, "dryRun": given.dry_run, "error": problem},
        [_outcome(given, name, levels[name], problem) for name in sorted(levels)],
    )
    if problem is not None:
        raise ToolError(f"{len(levels)} out of {len(levels)} operation(s) failed.")


def _outcome(given: argparse.Namespace, name: str, level: int, problem: str | None) -> str:
    disable = given.command == "disable"
    if problem is not None:
        what = f"disable {name}" if disable else f"{given.command} {name} to {level}"
        return f"{'Can not' if given.dry_run else 'Could not'} {what}. {problem}"
    what = "disabled." if disable else f"{given.command}d to {level}."
    return f"{name} {'can be' if given.dry_run else 'was'} {what}"


def _levels(given: argparse.Namespace, admin: Admin) -> dict[str, int]:
    """The level that each feature shall have."""
    levels: dict[str, int] = {}
    if given.command == "disable":
        for name in given.feature:
            _put(levels, name, 0)
        return levels
    if given.release_version is not None:
        if given.metadata is not None or given.feature:
            raise ToolError("Can not specify `release-version` with other feature flags.")
        level = _release_level(given.release_version)
        # A feature that no broker has heard of has nothing to be changed.
        known = {feature.name for feature in admin.peer().api_versions.supported_features}
        defaults = {name: value for name, value in default_levels(level).items() if name in known}
        return {
            METADATA_VERSION: level,
            **{name: value for name, value in defaults.items() if value or given.command != "upgrade"},
        }
    if given.metadata is not None:
        warn(given, "--metadata is deprecated; use --release-version or --feature metadata.version=LEVEL")
        levels[METADATA_VERSION] = _release_level(given.metadata)
    for text in given.feature:
        _put(levels, *_name_and_level(text))
    return levels


def _put(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise ToolError(f"Feature {name} was specified more than once.")
    levels[name] = level


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    if not level.lstrip("-").isdecimal() or abs(int(level)) > _LEVEL_MAX:
        raise ToolError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name, int(level)


def _release_level(release: str) -> int:
    level = level_of(release)
    if level is None:
        raise ToolError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: "
            f"{', '.join(RELEASES.values())}"
        )
    return level


def version_mapping(given: argparse.Namespace) -> int:
    from ottla.metadata.features import FEATURES

    own = next(feature.level_new for feature in FEATURES if feature.name == METADATA_VERSION)
    release = given.release_version or RELEASES[own]
    level = _release_level(release)
    levels = default_levels(level)
    lines = [f"{METADATA_VERSION}={level} ({release})", *(f"{name}={at}" for name, at in levels.items())]
    show(given, {METADATA_VERSION: level, **levels}, lines)
    return 0


def feature_dependencies(given: argparse.Namespace) -> int:
    found = {text: _needed(*_name_and_level(text)) for text in given.feature}
    show(given, found, [line for text, needed in found.items() for line in _needed_lines(text, needed)])
    return 0


def _needed(name: str, level: int) -> dict[str, int]:
    if name == METADATA_VERSION:
        if level not in RELEASES:
            raise ToolError(f"Unknown metadata.version {level}")
        return {}
    if name not in FEATURE_NAMES:
        raise ToolError(f"Unknown feature: {name}")
    try:
        return dependencies(name, level)
    except LookupError as error:
        raise ToolError(str(error.args[0])) from None


def _needed_lines(text: str, needed: dict[str, int]) -> Iterator[str]:
    name, level = _name_and_level(text)
    if not needed:
        yield f"{_level(name, level)} has no dependencies."
        return
    yield f"{name}={level} requires:"
    yield from (f"    {_level(other, at)}" for other, at in needed.items())


def _level(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({RELEASES[level]})" if name == METADATA_VERSION else "")


_RELEASE = Option("release-version", "the release whose levels all features shall have", "RELEASE")
_METADATA = Option("metadata", "deprecated: the release whose metadata.version to have", "RELEASE")
_FEATURES = Option("feature", "the level of a feature; may be repeated", "NAME=LEVEL", repeats=True)
_UNSAFE = Option("unsafe", "even if it may destroy metadata that cannot be had again")
_DRY_RUN = Option("dry-run", "only check whether it could be done")

RELEASE_COMMANDS = (
    Command(
        "version-mapping",
        "show the levels that a release's new clusters begin with",
        (Option("release-version", "the release; this version's own without it", "RELEASE"),),
    ),
    Command(
        "feature-dependencies",
        "show what a level of a feature needs of other features",
        (
            Option(
                "feature",
                "the feature and its level; may be repeated",
                "NAME=LEVEL",
                repeats=True,
                required=True,
            ),
        ),
    ),
)
"""What needs no cluster; kafka-storage has these, too."""

TOOL = Tool(
    name="features",
    description="Show and change the features of the cluster.",
    run=run,
    options=(EITHER_SERVER, EITHER_CONTROLLER, COMMAND_CONFIG),
    commands=(
        Command(
            "describe",
            "show which features are supported and finalized",
            (Option("node-id", "the broker to ask; any without it", "ID", int),),
        ),
        Command("upgrade", "raise the levels of features", (_RELEASE, _METADATA, _FEATURES, _DRY_RUN)),
        Command(
            "downgrade", "lower the levels of features", (_RELEASE, _METADATA, _FEATURES, _UNSAFE, _DRY_RUN)
        ),
        Command(
            "disable",
            "disable features, which is to lower their levels to zero",
            (Option("feature", "the feature; may be repeated", "NAME", repeats=True), _UNSAFE, _DRY_RUN),
        ),
        *RELEASE_COMMANDS,
    ),
    examples=(
        "--bootstrap-server localhost:9092 describe",
        "--bootstrap-server localhost:9092 upgrade --feature transaction.version=2 --dry-run",
        "version-mapping --release-version 4.1",
    ),
)
