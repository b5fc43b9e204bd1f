"""The numbers by which access rules name resources, patterns, operations and permissions, on the wire and in
the metadata log."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class AclResource(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: whatever pattern would match the name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The only resource of its type."""
WILDCARD = "*"
"""A literal name that stands for all, a host that stands for any, and after `User:` anybody."""
ANYBODY = "User:*"

_ANY = 1

# What can be done to a resource of each type at all, in Kafka's order of numbers.
OPERATIONS: dict[AclResource, tuple[Operation, ...]] = {
    AclResource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    AclResource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    AclResource.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    AclResource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class Acl(NamedTuple):
    """In Kafka's order of comparison, where the order matters."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    """As `User:name`."""
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which rules are meant: None, or the number of ANY, for whatever there is."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def has_unknown(self) -> bool:
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (_ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission in (_ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type in (_ANY, acl.pattern_type):
            return name in (None, acl.resource_name)
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return name in (None, acl.resource_name) or acl.resource_name == WILDCARD
        return name is None or name.startswith(acl.resource_name)
