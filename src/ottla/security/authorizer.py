"""Decides who may do what, as Apache Kafka's StandardAuthorizer does.

Super users may do everything. Otherwise rules count whose pattern, principal, host and operation match: one
that denies counts more than any that allow, and without any the answer is no. Only a resource about which
there is no rule at all, whoever it is for, is open to everybody if `allow.everyone.if.no.acl.found` says so.

Allowing to read, write, delete or alter something implies to describe it, and altering its settings implies
to describe those. Denying implies nothing.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.metadata.acls import Acls
from ottla.wire.acls import ANYBODY, WILDCARD, Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import AuthorizerNotReady

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.metadata.change import MetadataChange
    from ottla.security.audit import AuditLog

log = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
"""Decisions for one connection: then it begins anew."""

REFUSED_EARLY_MAX = 100
"""Principals that are told of in the log."""

_DENY = int(Permission.DENY)
# What an allowing rule has to be for, by what is asked; any other operation only by itself.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


class Verdict(NamedTuple):
    allowed: bool
    rule: Acl | None
    """That decided; None where it was something else."""
    reason: str
    """In Kafka's words: SuperUser, MatchingAcl, DefaultAllow, DefaultDeny."""


_SUPER_USER = Verdict(True, None, "SuperUser")
_DEFAULT_ALLOW = Verdict(True, None, "DefaultAllow")
_DEFAULT_DENY = Verdict(False, None, "DefaultDeny")


class Asker(Protocol):
    """Who asks; a session of a client."""

    principal: str
    host: str
    permissions: Permissions | None


class Authorizer:
    def __init__(self, super_users: frozenset[str], *, allow_without_rules: bool) -> None:
        self.acls = Acls()
        """Of the newest metadata. Decisions that rest on others are void."""
        self.is_loaded: Callable[[], bool] = lambda: True
        """Whether these are all that were committed before this node started. By older ones it might allow
        what was denied long ago: until then super users alone are let through."""
        self._refused_early: set[str] = set()
        self.super_users = super_users
        self.allow_without_rules = allow_without_rules
        self.audit: AuditLog | None = None
        """Of what is decided."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Authorizer | None:
        if not config.string("authorizer.class.name"):
            return None
        return cls(
            config.super_users,
            allow_without_rules=config.boolean("allow.everyone.if.no.acl.found"),
        )

    def apply(self, change: MetadataChange) -> None:
        if change.after.acls is not self.acls:
            self.acls = change.after.acls

    def not_ready(self, principal: str) -> AuthorizerNotReady:
        refusal = AuthorizerNotReady(
            f"this node does not know the access rules yet, and {principal} is not in its super.users, where "
            "controllers belong: they have to agree before rules are known"
        )
        if principal not in self._refused_early and len(self._refused_early) < REFUSED_EARLY_MAX:
            # Controllers tell each other nothing but codes.
            self._refused_early.add(principal)
            log.warning("%s is refused: %s", principal, refusal)
        return refusal

    def permissions(self, asker: Asker) -> Permissions:
        """What is known of who asks, as the rules are now."""
        known = asker.permissions
        if known is None or known.acls is not self.acls or known.principal is not asker.principal:
            known = asker.permissions = Permissions(self, asker.principal, asker.host)
        return known


class Permissions:
    """Of one principal from one host, under one set of rules: what was decided is remembered."""

    __slots__ = ("_authorizer", "_hosts", "_verdicts", "acls", "principal", "readable", "writable")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.acls = authorizer.acls
        self.principal = principal
        self._hosts = hosts_matching(host)
        self._verdicts: dict[tuple[int, int, str], Verdict] = {}
        self.writable: tuple[set[bytes], set[bytes]] = (set(), set())
        """Topics that are known to be writable, for requests that come often: their names, and their ids. Not
        together, because a client may call a topic by whatever bytes an id has."""
        self.readable: tuple[set[bytes], set[bytes]] = (set(), set())

    def verdict(self, operation: Operation, kind: AclResource, name: str) -> Verdict:
        key = (operation, kind, name)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= REMEMBERED_MAX:
                self._verdicts.clear()
            found = self._verdicts[key] = self._decide(operation, kind, name)
        return found

    def remember(self, known: set[bytes], topic: bytes) -> None:
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known.add(topic)

    def allows_for_any(self, operation: Operation, kind: AclResource) -> bool:
        """For at least one resource of this kind that there may be."""
        if self.verdict(operation, kind, "hardcode").allowed:
            return True
        # Kafka does not look at what is implied here, nor whether such a resource exists.
        rules = [rule for rule in self._mine() if rule.resource_type == kind]
        rules = [rule for rule in rules if rule.operation in (operation, Operation.ALL)]
        denied = {(rule.pattern_type, rule.resource_name) for rule in rules if rule.permission == _DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        allowing = [rule for rule in rules if rule.permission == Permission.ALLOW]
        return any(not _is_dominated(rule, denied) for rule in allowing)

    def _mine(self) -> Iterator[Acl]:
        for principal in {self.principal, ANYBODY}:
            for acl in self.acls.by_principal.get(principal, {}).values():
                if acl.host in self._hosts:
                    yield acl

    def _decide(self, operation: Operation, kind: AclResource, name: str) -> Verdict:
        authorizer = self._authorizer
        if self.principal in authorizer.super_users:
            return _SUPER_USER
        if not authorizer.is_loaded():
            raise authorizer.not_ready(self.principal)
        allowing: Acl | None = None
        has_rules = False
        for rules in self.acls.matching(kind, name):
            has_rules = True
            for principal in (self.principal, ANYBODY):
                for acl in rules.get(principal, {}).values():
                    if acl.host not in self._hosts or not _is_for(acl, operation):
                        continue
                    if acl.permission == _DENY:
                        return Verdict(False, acl, "MatchingAcl")
                    allowing = acl
        if allowing is not None:
            return Verdict(True, allowing, "MatchingAcl")
        return _DEFAULT_ALLOW if authorizer.allow_without_rules and not has_rules else _DEFAULT_DENY


def _is_for(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission != _DENY and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_dominated(rule: Acl, denied: set[tuple[int, str]]) -> bool:
    """Whatever this one allows, others deny."""
    name = rule.resource_name
    if rule.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def hosts_matching(host: str) -> frozenset[str]:
    """What a rule may have as its host to be about this one: any, or the address, also as Java writes it."""
    found = {WILDCARD, host}
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return frozenset(found)
    found.add(str(address))
    if isinstance(address, ipaddress.IPv6Address):
        found.add(":".join(f"{int(part, 16):x}" for part in address.exploded.split(":")))
        if address.ipv4_mapped is not None:
            found.add(str(address.ipv4_mapped))
    return frozenset(found)
