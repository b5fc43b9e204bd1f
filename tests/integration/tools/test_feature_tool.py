"""Features shown and changed, on a broker of their own: levels are the whole cluster's."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli.cluster.admin import Admin
from ottla.cli.framework.errors import Refused
from ottla.testing import InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


def test_levels_are_changed_and_changed_back(tool: Any) -> None:
    with InProcessBroker() as broker:
        place = ("--bootstrap-server", broker.bootstrap_servers)

        def level(name: str) -> str:
            described = tool("features", *place, "describe", "--json").data
            return next(item["finalized"] for item in described if item["feature"] == name)

        assert level("transaction.version") == "2"
        lowering = ("downgrade", "--feature", "transaction.version=1")
        assert tool("features", *place, *lowering, "--dry-run").lines == [
            "transaction.version can be downgraded to 1."
        ]
        assert level("transaction.version") == "2"
        assert tool("features", *place, *lowering).lines == ["transaction.version was downgraded to 1."]
        assert level("transaction.version") == "1"
        assert tool("features", *place, "upgrade", "--release-version", "4.1").status == 0
        assert level("transaction.version") == "2"
        assert tool("features", *place, "disable", "--feature", "group.version").lines == [
            "group.version was disabled."
        ]
        assert level("group.version") == "0"
        refused = tool("features", *place, "upgrade", "--feature", "group.version=9")
        assert refused.status == 1
        assert refused.lines == [
            "Could not upgrade group.version to 9. The update failed for all features since the following "
            "feature had an error: Invalid update version 9 for feature group.version. Local controller 1 "
            "only supports versions 0-1"
        ]
        assert "1 out of 1 operation(s) failed." in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("upgrade",), "You must specify at least one feature to upgrade"),
        (("upgrade", "--feature", "x"), "equals sign not found"),
        (("upgrade", "--feature", "x=y"), "unable to parse y as a short"),
        (("upgrade", "--release-version", "9.9"), "Unknown metadata.version '9.9'"),
        (("upgrade", "--release-version", "4.1", "--feature", "a=1"), "Can not specify `release-version`"),
        (("disable", "--feature", "a", "--feature", "a"), "Feature a was specified more than once."),
        (("feature-dependencies", "--feature", "a=1"), "Unknown feature: a"),
        (("feature-dependencies", "--feature", "kraft.version=9"), "No feature:kraft.version with feature"),
    ],
)
def test_what_makes_no_sense_is_said(tool: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = tool("features", "--bootstrap-server", "127.0.0.1:9", *arguments)
    assert refused.status == 1
    assert message in refused.err


def test_levels_of_a_release(tool: Any) -> None:
    shown = tool("features", "version-mapping", "--release-version", "4.0").lines
    assert shown[:3] == ["metadata.version=25 (4.0)", "kraft.version=1", "transaction.version=2"]
    needed = tool("features", "feature-dependencies", "--feature", "eligible.leader.replicas.version=1")
    assert needed.lines == [
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
    ]


def test_older_clients_are_told_of_each_feature(broker: InProcessBroker) -> None:
    admin = Admin(broker.bootstrap_servers, {}, "test")
    updates = [
        {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1},
        {"feature": "transaction.version", "max_version_level": 9, "upgrade_type": 1},
    ]
    try:
        done = admin.ask(
            ApiKey.UPDATE_FEATURES, {"feature_updates": updates[:1], "validate_only": True}, version_max=1
        )
        # Where nothing is done there is nothing to say of each, as in Apache Kafka.
        with pytest.raises(Refused) as refused:
            admin.ask(
                ApiKey.UPDATE_FEATURES, {"feature_updates": updates, "validate_only": True}, version_max=1
            )
        with pytest.raises(Refused) as twice:
            admin.ask(ApiKey.UPDATE_FEATURES, {"feature_updates": updates[:1] * 2})
    finally:
        admin.close()
    assert [(item.feature, item.error_code) for item in done.results] == [("group.version", ErrorCode.none)]
    assert refused.value.code == ErrorCode.invalid_update_version
    assert twice.value.code == ErrorCode.invalid_request
