"""Who may do what, who is who, and how much of it: access rules, users, quotas, tokens."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ottla.client.admin import acls, credentials, quotas, tokens
from ottla.client.admin.tokens import Principal
from ottla.console.api.typed import check_typed
from ottla.console.asked import Secret
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.problems import Refused
from ottla.wire.acls import Acl, AclFilter, AclResource, Operation, PatternType, Permission

_PASSWORD_MIN = 1
Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class FindRules:
    q: Annotated[str, "a part of the principal or of the resource's name"] = ""


@dataclass(frozen=True, slots=True)
class Rule:
    principal: Annotated[str, "as User:alice; User:* for anybody"]
    operation: Annotated[str, "such as READ, WRITE or ALL"]
    resource: Annotated[str, "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER"]
    name: Annotated[str, "of the resource; * for all"]
    pattern: Annotated[Literal["LITERAL", "PREFIXED"], "how the name is meant"] = "LITERAL"
    permission: Annotated[Literal["ALLOW", "DENY"], "what the rule does"] = "ALLOW"
    host: Annotated[str, "an address; * for any"] = "*"


@dataclass(frozen=True, slots=True)
class RemoveRule(Rule):
    confirm: Annotated[str, "the principal once more, as typed by whoever is sure"] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class SetUser:
    user: Annotated[str, "its name"]
    password: Annotated[str, "it is hashed before it leaves the console", Secret]
    mechanism: Annotated[Mechanism, "how the user logs in"] = "SCRAM-SHA-512"
    iterations: Annotated[int, "of the hash, from 4096 to 16384"] = credentials.ITERATIONS_MIN


@dataclass(frozen=True, slots=True)
class RemoveUser:
    user: Annotated[str, "its name"]
    mechanism: Annotated[Mechanism, "which of its credentials"]
    confirm: Annotated[str, "the name once more, as typed by whoever is sure"]


@dataclass(frozen=True, slots=True)
class OneQuota:
    quota: Annotated[str, "such as producer_byte_rate"]
    user: Annotated[str | None, "of a user; empty for the default of all"] = None
    client_id: Annotated[str | None, "of a client; empty for the default of all"] = None
    ip: Annotated[str | None, "of an address; empty for the default of all"] = None


@dataclass(frozen=True, slots=True)
class SetQuota(OneQuota):
    value: Annotated[float, "the limit"] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class RemoveQuota(OneQuota):
    confirm: Annotated[str, "its name once more, as typed by whoever is sure"] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class CreateToken:
    owner: Annotated[str, "as User:alice; whoever the console logs in as without"] = ""
    renewers: Annotated[list[str], "who may renew it, as User:bob"] = field(default_factory=list)
    life_ms: Annotated[int, "how long it may be renewed; -1 for as long as the cluster allows"] = -1


@dataclass(frozen=True, slots=True)
class OneToken:
    hmac: Annotated[str, "the token's HMAC", Secret]


@dataclass(frozen=True, slots=True)
class EndToken(OneToken):
    confirm: Annotated[str, "its id, as typed by whoever is sure"]


@endpoint("GET", "/acls", "Access rules")
async def find_rules(cluster: Cluster, asked: FindRules) -> Any:
    found = await acls.describe_acls(cluster.client, AclFilter(1, None, 1, None, None, 1, 1))
    part = asked.q.lower()
    return {
        "rules": [
            {
                "principal": rule.principal,
                "permission": _name(Permission, rule.permission),
                "operation": _name(Operation, rule.operation),
                "resource": _name(AclResource, rule.resource_type),
                "name": rule.resource_name,
                "pattern": _name(PatternType, rule.pattern_type),
                "host": rule.host,
            }
            for rule in sorted(found, key=lambda rule: (rule.principal, rule))
            if part in rule.principal.lower() or part in rule.resource_name.lower()
        ]
    }


@endpoint("POST", "/acls", "Add an access rule")
async def add_rule(cluster: Cluster, asked: Rule) -> Any:
    await acls.create_acls(cluster.client, [_rule(asked)])
    return {"added": 1}


@endpoint("DELETE", "/acls", "Remove an access rule")
async def remove_rule(cluster: Cluster, asked: RemoveRule) -> Any:
    check_typed("who the rule is about", asked.principal, asked.confirm)
    removed = await acls.delete_acls(cluster.client, [AclFilter(*_rule(asked))])
    if not removed:
        raise Refused("there is no such rule any more", 404)
    return {"removed": len(removed)}


@endpoint("GET", "/users", "Users with credentials for SCRAM")
async def find_users(cluster: Cluster, asked: Nothing) -> Any:
    found = await credentials.describe_credentials(cluster.client)
    return {
        "users": [
            {"user": user, "mechanism": mechanism, "iterations": iterations}
            for user, mechanisms in sorted(found.items())
            for mechanism, iterations in sorted(mechanisms.items())
        ]
    }


@endpoint("PUT", "/users/{user}", "Give a user a password, or a new one")
async def set_user(cluster: Cluster, asked: SetUser) -> Any:
    if len(asked.password) < _PASSWORD_MIN:
        raise Refused("password is empty")
    if not credentials.ITERATIONS_MIN <= asked.iterations <= credentials.ITERATIONS_MAX:
        raise Refused(
            f"iterations is {asked.iterations}; it must be from {credentials.ITERATIONS_MIN} to "
            f"{credentials.ITERATIONS_MAX}"
        )
    password = credentials.Password(asked.password, asked.iterations)
    await credentials.alter_credentials(cluster.client, asked.user, {asked.mechanism: password})
    return {"user": asked.user}


@endpoint("DELETE", "/users/{user}", "Remove a credential of a user")
async def remove_user(cluster: Cluster, asked: RemoveUser) -> Any:
    check_typed("the name of the user", asked.user, asked.confirm)
    await credentials.alter_credentials(cluster.client, asked.user, {}, [asked.mechanism])
    return {"removed": asked.user}


@endpoint("GET", "/quotas", "Quotas of users, clients and addresses")
async def find_quotas(cluster: Cluster, asked: Nothing) -> Any:
    found = await quotas.describe_quotas(cluster.client, {}, strict=False)
    return {
        "quotas": [
            {
                "user": _shown_name(each.entity, quotas.USER),
                "client_id": _shown_name(each.entity, quotas.CLIENT_ID),
                "ip": _shown_name(each.entity, quotas.IP),
                "quota": key,
                "value": value,
            }
            for each in found
            for key, value in sorted(each.values.items())
        ]
    }


@endpoint("PUT", "/quotas", "Set a quota")
async def set_quota(cluster: Cluster, asked: SetQuota) -> Any:
    await quotas.alter_quotas(cluster.client, _limited(asked), {asked.quota: asked.value})
    return {"quota": asked.quota, "value": asked.value}


@endpoint("DELETE", "/quotas", "Remove a quota")
async def remove_quota(cluster: Cluster, asked: RemoveQuota) -> Any:
    check_typed("the name of the quota", asked.quota, asked.confirm)
    await quotas.alter_quotas(cluster.client, _limited(asked), {}, [asked.quota])
    return {"removed": asked.quota}


@endpoint("GET", "/tokens", "Delegation tokens")
async def find_tokens(cluster: Cluster, asked: Nothing) -> Any:
    return {"tokens": [_shown_token(token) for token in await tokens.describe_tokens(cluster.client)]}


@endpoint("POST", "/tokens", "Create a delegation token")
async def create_token(cluster: Cluster, asked: CreateToken) -> Any:
    owner = _principal(asked.owner) if asked.owner else None
    renewers = [_principal(text) for text in asked.renewers]
    return _shown_token(await tokens.create_token(cluster.client, owner, renewers, asked.life_ms))


@endpoint("POST", "/tokens/renew", "Renew a delegation token")
async def renew_token(cluster: Cluster, asked: OneToken) -> Any:
    return {"expires": (await tokens.renew_token(cluster.client, _hmac(asked))).isoformat()}


@endpoint("POST", "/tokens/expire", "End a delegation token at once")
async def expire_token(cluster: Cluster, asked: EndToken) -> Any:
    hmac = _hmac(asked)
    found = [token.id for token in await tokens.describe_tokens(cluster.client) if token.hmac == hmac]
    if not found:
        raise Refused("there is no such token any more", 404)
    check_typed("the id of the token", found[0], asked.confirm)
    return {"expires": (await tokens.expire_token(cluster.client, hmac)).isoformat()}


ENDPOINTS = (
    find_rules,
    add_rule,
    remove_rule,
    find_users,
    set_user,
    remove_user,
    find_quotas,
    set_quota,
    remove_quota,
    find_tokens,
    create_token,
    renew_token,
    expire_token,
)


def _rule(asked: Rule) -> Acl:
    return Acl(
        _number(AclResource, "resource", asked.resource),
        asked.name,
        PatternType[asked.pattern],
        asked.principal,
        asked.host,
        _number(Operation, "operation", asked.operation),
        Permission[asked.permission],
    )


def _limited(asked: OneQuota) -> dict[str, str]:
    named = {quotas.USER: asked.user, quotas.CLIENT_ID: asked.client_id, quotas.IP: asked.ip}
    entity = {kind: name for kind, name in named.items() if name is not None}
    if not entity:
        raise Refused("whose quota? give user, client_id or ip; an empty one is the default of all")
    return entity


def _number(kind: Any, field_name: str, text: str) -> int:
    names = [each.name for each in kind if each.value > 1]
    if text not in names:
        raise Refused(f"{field_name} is {text!r}; it must be one of {', '.join(names)}")
    return int(kind[text])


def _name(kind: Any, number: int) -> str:
    """Of a number that newer clusters may have more of."""
    try:
        return str(kind(number).name)
    except ValueError:
        return str(number)


def _shown_name(entity: dict[str, str | None], kind: str) -> str | None:
    """None where the quota is not about the kind at all, empty for its default."""
    return (entity[kind] or "") if kind in entity else None


def _principal(text: str) -> Principal:
    kind, colon, name = text.strip().partition(":")
    if not colon or not name:
        raise Refused(f"{text!r} is not a principal such as User:alice")
    return Principal(kind, name)


def _hmac(asked: OneToken) -> bytes:
    try:
        return base64.b64decode(asked.hmac, validate=True)
    except binascii.Error:
        raise Refused("hmac is not base64") from None


def _shown_token(token: tokens.Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "hmac": base64.b64encode(token.hmac).decode(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issued": token.issued.isoformat(),
        "expires": token.expires.isoformat(),
        "ends": token.ends.isoformat(),
    }
