"""Access rules: looked for, created and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.acls import Acl, AclFilter
from ottla.wire.api import ApiKey


async def describe_acls(cluster: ClusterClient, wanted: AclFilter) -> list[Acl]:
    answer = await cluster.ask(None, ApiKey.DESCRIBE_ACLS, _filter(wanted), about="")
    return [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


async def create_acls(cluster: ClusterClient, acls: Sequence[Acl]) -> None:
    """All of them, or raises for the first that cannot be created."""
    creations = [
        {
            "resource_type": acl.resource_type,
            "resource_name": acl.resource_name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
    answer = await cluster.ask(None, ApiKey.CREATE_ACLS, {"creations": creations}, about="")
    for result in answer.results:
        raise_for_code(result.error_code, result.error_message, "")


async def delete_acls(cluster: ClusterClient, filters: Sequence[AclFilter]) -> list[Acl]:
    """What was deleted."""
    values = {"filters": [_filter(wanted) for wanted in filters]}
    answer = await cluster.ask(None, ApiKey.DELETE_ACLS, values, about="")
    deleted = []
    for result in answer.filter_results:
        raise_for_code(result.error_code, result.error_message, "")
        for acl in result.matching_acls:
            raise_for_code(acl.error_code, acl.error_message, acl.resource_name)
            deleted.append(
                Acl(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
            )
    return deleted


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
