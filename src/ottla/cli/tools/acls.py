"""`kafka-acls`: who may do what, rule by rule."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import groupby, product
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import COMMAND_CONFIG, EITHER_CONTROLLER, EITHER_SERVER, Option, Tool
from ottla.wire.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    AclResource,
    Operation,
    PatternType,
    Permission,
)

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin

_ACTIONS = ("add", "remove", "list")
_FOR_PRODUCERS = {
    AclResource.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    AclResource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_FOR_CONSUMERS = {
    AclResource.TOPIC: (Operation.READ, Operation.DESCRIBE),
    AclResource.GROUP: (Operation.READ,),
}
_NAMES = {operation.name.replace("_", "").lower(): operation for operation in Operation}
_LISTED_OPERATIONS = ", ".join(
    "".join(word.capitalize() for word in operation.name.split("_"))
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
)
_ANYTHING = AclFilter(AclResource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)

Resource = tuple[AclResource, str, PatternType]
Entry = tuple[str, str, Operation, Permission]
"""Principal, host, operation, permission."""


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    _check(given)
    with cluster(given) as admin:
        if given.add:
            _add(given, admin)
        elif given.remove:
            _remove(given, admin)
        else:
            _list(given, admin)
    return 0


def _check(given: argparse.Namespace) -> None:
    actions = [action for action in _ACTIONS if getattr(given, action)]
    if len(actions) != 1:
        raise ToolError("Command must include exactly one action: --list, --add, --remove.")
    roles = [role for role in ("producer", "consumer") if getattr(given, role)]
    misplaced: dict[str, tuple[str, ...]] = dict.fromkeys(roles, ("operation", "deny_principal", "deny_host"))
    if given.list:
        misplaced["list"] = (
            *("producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal"),
        )
    for option, others in misplaced.items():
        for other in others:
            if getattr(given, other):
                raise ToolError(f"Option --{option} can't be used with option --{other.replace('_', '-')}")
    if given.principal and not given.list:
        raise ToolError("The --principal option is only available if --list is set")
    if given.producer and not given.topic:
        raise ToolError("With --producer you must specify a --topic")
    if given.idempotent and not given.producer:
        raise ToolError("The --idempotent option is only available if --producer is set")
    alone = given.consumer and not given.producer
    if given.consumer and (
        not given.topic or not given.group or (alone and (given.cluster or given.transactional_id))
    ):
        raise ToolError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id "
            "option should be specified."
        )
    for principal in (*given.allow_principal, *given.deny_principal, *given.principal):
        if ":" not in principal:
            raise ToolError(f"{principal}: must be as User:{principal}")


def _resources(given: argparse.Namespace) -> list[Resource]:
    pattern = PatternType[given.resource_pattern_type.upper()]
    found: list[Resource] = [(AclResource.TOPIC, name.strip(), pattern) for name in given.topic]
    if pattern is PatternType.LITERAL and (given.cluster or given.idempotent):
        found.append((AclResource.CLUSTER, CLUSTER_NAME, pattern))
    for kind, names in (
        (AclResource.GROUP, given.group),
        (AclResource.TRANSACTIONAL_ID, given.transactional_id),
        (AclResource.DELEGATION_TOKEN, given.delegation_token),
        (AclResource.USER, given.user_principal),
    ):
        found += [(kind, name.strip(), pattern) for name in names]
    return list(dict.fromkeys(found))


def _wanted(given: argparse.Namespace) -> dict[Resource, list[Entry]]:
    """The entries of each resource that are to be added or removed."""
    resources = _resources(given)
    if not resources:
        raise ToolError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    wanted: dict[Resource, dict[Entry, None]] = {}
    if given.producer or given.consumer:
        for role, operations in ((given.producer, _FOR_PRODUCERS), (given.consumer, _FOR_CONSUMERS)):
            for resource in resources if role else ():
                if resource[0] in operations:
                    entries = _entries(given, operations[resource[0]])
                    wanted.setdefault(resource, {}).update(dict.fromkeys(entries))
        if given.idempotent:
            cluster_resource = (AclResource.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            wanted[cluster_resource] = dict.fromkeys(_entries(given, (Operation.IDEMPOTENT_WRITE,)))
    else:
        entries = _entries(given, [_operation(name) for name in given.operation] or [Operation.ALL])
        wanted = {resource: dict.fromkeys(entries) for resource in resources}
    for (kind, _, _), of_resource in wanted.items():
        _check_operations(kind, of_resource)
    return {resource: list(of_resource) for resource, of_resource in wanted.items()}


def _operation(text: str) -> Operation:
    found = _NAMES.get(text.strip().replace("_", "").lower(), Operation.UNKNOWN)
    if found in (Operation.UNKNOWN, Operation.ANY):
        raise ToolError(f"--operation {text}: must be one of {_LISTED_OPERATIONS}")
    return found


def _check_operations(kind: AclResource, entries: Iterable[Entry]) -> None:
    valid = (Operation.ALL, *OPERATIONS[kind])
    if any(operation not in valid for _, _, operation, _ in entries):
        names = ", ".join(operation.name for operation in valid)
        raise ToolError(f"ResourceType {kind.name} only supports operations [{names}]")


def _entries(given: argparse.Namespace, operations: Iterable[Operation]) -> list[Entry]:
    operations = list(operations)
    found: list[Entry] = []
    for permission, principals, hosts in (
        (Permission.ALLOW, given.allow_principal, given.allow_host),
        (Permission.DENY, given.deny_principal, given.deny_host),
    ):
        found += [
            (principal.strip(), host.strip(), operation, permission)
            for principal, operation, host in product(principals, operations, hosts or [WILDCARD])
        ]
    return found


def _add(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.acls import create_acls, describe_acls

    if given.resource_pattern_type.upper() not in ("LITERAL", "PREFIXED"):
        raise ToolError(
            f"A '--resource-pattern-type' value of '{given.resource_pattern_type.upper()}' is not valid when "
            "adding acls."
        )
    wanted = _wanted(given)
    if not all(wanted.values()):
        raise ToolError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    added: list[Acl] = []
    lines: list[str] = []
    for (kind, name, pattern), entries in wanted.items():
        about = _ANYTHING._replace(resource_type=kind, resource_name=name, pattern_type=pattern)
        existing = set(admin.call(describe_acls, about))
        new = []
        for entry in entries:
            acl = Acl(kind, name, pattern, *entry)
            if acl in existing:
                lines.append(f"Acl (pattern={_pattern(acl)}, entry={_entry(acl)}) already exists.")
            else:
                new.append(acl)
        if new:
            lines += [
                f"Adding ACLs for resource `{_pattern(new[0])}`: ",
                *_indented(new),
                "",
            ]
            admin.call(create_acls, new)
            added += new
    show(given, [_data(acl) for acl in added], lines)


def _remove(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.acls import delete_acls

    removed: list[Acl] = []
    for (kind, name, pattern), entries in _wanted(given).items():
        about = _ANYTHING._replace(resource_type=kind, resource_name=name, pattern_type=pattern)
        shown = f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern.name})"
        if entries:
            listed = _indented([Acl(kind, name, pattern, *entry) for entry in entries])
            question = "\n".join(
                ["Are you sure you want to remove ACLs: ", *listed, f" from resource filter `{shown}`? (y/n)"]
            )
            filters = [
                about._replace(principal=principal, host=host, operation=operation, permission=permission)
                for principal, host, operation, permission in entries
            ]
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
            filters = [about]
        if _is_confirmed(given, question):
            removed += admin.call(delete_acls, filters)
    show(given, [_data(acl) for acl in removed], [])


def _is_confirmed(given: argparse.Namespace, question: str) -> bool:
    if given.force:
        return True
    print(question, flush=True)
    try:
        return input().strip().lower() == "y"
    except EOFError:
        raise ToolError("nobody is there to confirm; give --force to remove without asking") from None


def _list(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.acls import describe_acls

    filters = [
        _ANYTHING._replace(resource_type=kind, resource_name=name, pattern_type=pattern)
        for kind, name, pattern in _resources(given)
    ]
    found = sorted({acl for wanted in filters or [_ANYTHING] for acl in admin.call(describe_acls, wanted)})
    lines: list[str] = []
    if given.principal:
        shown: list[Acl] = []
        for principal in dict.fromkeys(name.strip() for name in given.principal):
            mine = [acl for acl in found if acl.principal == principal]
            lines += [f"ACLs for principal `{principal}`", *_listed(mine)]
            shown += mine
        found = shown
    else:
        lines = _listed(found)
    columns = ("Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission")
    show(
        given,
        [_data(acl) for acl in found],
        lines,
        [Table(columns, [tuple(_data(acl).values()) for acl in found])],
    )


def _listed(acls: list[Acl]) -> list[str]:
    lines: list[str] = []
    for pattern, of_pattern in groupby(acls, key=_pattern):
        lines += [f"Current ACLs for resource `{pattern}`:", *_indented(of_pattern, ""), ""]
    return lines


def _indented(acls: Iterable[Acl], first: str = " ") -> list[str]:
    """As Apache Kafka prints them: the first line has a space before its tab where it is asked about."""
    return [f"{first if number == 0 else ''}\t{_entry(acl)}" for number, acl in enumerate(acls)]


def _pattern(acl: Acl) -> str:
    return (
        f"ResourcePattern(resourceType={AclResource(acl.resource_type).name}, name={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name})"
    )


def _entry(acl: Acl) -> str:
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={Operation(acl.operation).name}, "
        f"permissionType={Permission(acl.permission).name})"
    )


def _data(acl: Acl) -> dict[str, Any]:
    return {
        "resourceType": AclResource(acl.resource_type).name,
        "resourceName": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name,
        "permissionType": Permission(acl.permission).name,
    }


TOOL = Tool(
    name="acls",
    description="See and change who may do what.",
    run=run,
    options=(
        EITHER_SERVER,
        EITHER_CONTROLLER,
        COMMAND_CONFIG,
        Option("add", "add rules"),
        Option("remove", "remove rules"),
        Option("list", "list rules, of the resources that are named, or all"),
        Option("topic", "a topic, or * for all", "TOPIC", repeats=True),
        Option("group", "a consumer group, or * for all", "GROUP", repeats=True),
        Option("cluster", "the cluster itself"),
        Option("transactional-id", "a transactional id, or * for all", "ID", repeats=True),
        Option("delegation-token", "a delegation token, or * for all", "TOKEN", repeats=True),
        Option("user-principal", "a user for whom tokens are asked for", "PRINCIPAL", repeats=True),
        Option(
            "resource-pattern-type",
            "literal or prefixed; to list and to remove also any, for any pattern of that name, and match, "
            "for whatever applies to that name",
            "TYPE",
            default="literal",
            parse=str.lower,
            choices=("any", "match", "literal", "prefixed"),
        ),
        Option("operation", f"what is allowed or denied: {_LISTED_OPERATIONS}", "OPERATION", repeats=True),
        Option("allow-principal", "who is allowed, as User:name; User:* for all", "PRINCIPAL", repeats=True),
        Option("deny-principal", "who is denied, whatever others allow", "PRINCIPAL", repeats=True),
        Option("allow-host", "from where; * by default", "HOST", repeats=True),
        Option("deny-host", "from where; * by default", "HOST", repeats=True),
        Option("principal", "list only rules of this principal", "PRINCIPAL", repeats=True),
        Option("producer", "what a producer needs: Write, Describe and Create on the topic"),
        Option("consumer", "what a consumer needs: Read and Describe on the topic, Read on the group"),
        Option("idempotent", "with --producer: IdempotentWrite on the cluster"),
        Option("force", "do not ask before removing"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --add --allow-principal User:alice --producer --topic orders",
        "--bootstrap-server localhost:9092 --add --allow-principal User:bob --consumer --topic orders "
        "--group billing",
        "--bootstrap-server localhost:9092 --list",
    ),
)
