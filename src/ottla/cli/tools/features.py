"""`kafka-features`: the features a cluster has agreed on and those its brokers could."""

from __future__ import annotations

import argparse

from ottla.cli.output import Table, show
from ottla.cli.releases import level_text
from ottla.cli.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Command, Option, Tool


def run(given: argparse.Namespace) -> int:
    from ottla.cli.admin import cluster

    with cluster(given) as admin:
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
    return 0


TOOL = Tool(
    name="features",
    description="Show the features of the cluster.",
    run=run,
    options=(EITHER_SERVER, EITHER_CONTROLLER, COMMAND_CONFIG),
    commands=(
        Command(
            "describe",
            "show which features are supported and finalized",
            (Option("node-id", "the broker to ask; any without it", "ID", int),),
        ),
    ),
    examples=("--bootstrap-server localhost:9092 describe",),
)
