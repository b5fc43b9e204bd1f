"""Administrators of access: rules, credentials and quotas are set and removed, and every node is looked into
for what it goes by."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ottla.metadata.records import RecordType
from ottla.node import Node
from ottla.sim.chaos import requests
from ottla.sim.chaos.session import Unanswered
from ottla.sim.client import Client, RequestFailed
from ottla.sim.cluster.forbidden import AccessEntry, AccessValue
from ottla.sim.cluster.machines import host_of
from ottla.sim.cluster.session import ClusterSession
from ottla.wire.acls import Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.metadata.foreign_records import UserScramCredentialRecord

LOOK_EVERY_S = 0.2
USERS = tuple(f"u{number}" for number in range(4))
RULES = tuple(
    Acl(AclResource.TOPIC, name, pattern, f"User:{user}", "*", operation, Permission.ALLOW)
    for user in USERS
    for name, pattern in (("orders", PatternType.LITERAL), ("logs-", PatternType.PREFIXED))
    for operation in (Operation.READ, Operation.WRITE)
)
MECHANISMS = (1, 2)
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
# Of nobody who is there: they are not to be slowed down.
ENTITIES: tuple[tuple[tuple[str, str | None], ...], ...] = (
    *((("user", user),) for user in USERS),
    (("client-id", None), ("user", "u0")),
    (("client-id", "someone"),),
)
QUOTAS = ("producer_byte_rate", "consumer_byte_rate")

Changes = dict[AccessEntry, AccessValue]


def rule_entry(acl: Acl) -> AccessEntry:
    return ("rule", acl)


def credential_entry(user: str, mechanism: int) -> AccessEntry:
    return ("credential", (user, mechanism))


def quota_entry(entity: tuple[tuple[str, str | None], ...], key: str) -> AccessEntry:
    return ("quota", (entity, key))


class ChangingAccess:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self._numbers = 0

    async def change(self, name: str) -> None:
        session = self._session
        chance, client = session.world.random(name), session.client(name, timeout_s=8.0)
        while await session.pause(chance, 0.15):
            try:
                await self.change_one(client, chance)
            except (RequestFailed, Unanswered):
                continue

    async def change_one(self, client: Client, chance: random.Random) -> Changes:
        """What was acknowledged."""
        actions: tuple[Callable[[Client, random.Random], Awaitable[Changes]], ...] = (
            self._create_rules,
            self._delete_rule,
            self._delete_rules_of_a_user,
            self._set_credential,
            self._delete_credential,
            self._set_quotas,
            self._remove_quotas,
        )
        return await chance.choices(actions, (6, 3, 1, 6, 2, 4, 2))[0](client, chance)

    async def _ask(self, what: str, changes: Changes, request: Awaitable[None]) -> Changes:
        access = self._session.access
        asked = access.asking(changes)
        try:
            await self._session.ask(what, request)
        except RequestFailed as refused:
            # Who finds nothing to remove may have removed it: a broker that lost the controller asks again.
            if refused.code is not ErrorCode.resource_not_found:
                raise
        access.acknowledged(changes, asked)
        return changes

    # Rules.

    async def _create_rules(self, client: Client, chance: random.Random) -> Changes:
        rules = chance.sample(RULES, chance.randint(1, 3))
        module = requests.schema("create_acls", 3)
        request = module.CreateAclsRequest(
            creations=tuple(
                module.AclCreation(
                    resource_type=rule.resource_type,
                    resource_name=rule.resource_name,
                    resource_pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
                for rule in rules
            )
        )

        async def answered() -> None:
            for result in (await client.send(request)).results:
                requests.check(result)

        return await self._ask("create rules", {rule_entry(rule): True for rule in rules}, answered())

    async def _delete_rule(self, client: Client, chance: random.Random) -> Changes:
        rule = chance.choice(RULES)
        wanted = {
            "resource_type_filter": rule.resource_type,
            "resource_name_filter": rule.resource_name,
            "pattern_type_filter": rule.pattern_type,
            "principal_filter": rule.principal,
            "host_filter": rule.host,
            "operation": rule.operation,
            "permission_type": rule.permission,
        }
        return await self._delete_rules(client, wanted, [rule])

    async def _delete_rules_of_a_user(self, client: Client, chance: random.Random) -> Changes:
        principal = f"User:{chance.choice(USERS)}"
        rules = [rule for rule in RULES if rule.principal == principal]
        return await self._delete_rules(client, {**_ALL_RULES, "principal_filter": principal}, rules)

    async def _delete_rules(self, client: Client, wanted: Mapping[str, object], rules: list[Acl]) -> Changes:
        module = requests.schema("delete_acls", 3)
        request = module.DeleteAclsRequest(filters=(module.DeleteAclsFilter(**wanted),))

        async def answered() -> None:
            requests.check((await client.send(request)).filter_results[0])

        return await self._ask("delete rules", {rule_entry(rule): None for rule in rules}, answered())

    # Credentials.

    async def _set_credential(self, client: Client, chance: random.Random) -> Changes:
        user, mechanism = chance.choice(USERS), chance.choice(MECHANISMS)
        self._numbers += 1
        # A number of its own: any broker tells it, and by it one credential from another.
        iterations = ITERATIONS_MIN + self._numbers % (ITERATIONS_MAX - ITERATIONS_MIN + 1)
        module = requests.schema("alter_user_scram_credentials", 0)
        credential = module.ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
        )
        request = module.AlterUserScramCredentialsRequest(deletions=(), upsertions=(credential,))
        entry = credential_entry(user, mechanism)
        return await self._ask("set credential", {entry: iterations}, _first_result(client, request))

    async def _delete_credential(self, client: Client, chance: random.Random) -> Changes:
        user, mechanism = chance.choice(USERS), chance.choice(MECHANISMS)
        module = requests.schema("alter_user_scram_credentials", 0)
        deletion = module.ScramCredentialDeletion(name=user, mechanism=mechanism)
        request = module.AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=())
        entry = credential_entry(user, mechanism)
        return await self._ask("delete credential", {entry: None}, _first_result(client, request))

    # Quotas.

    async def _set_quotas(self, client: Client, chance: random.Random) -> Changes:
        self._numbers += 1
        keys = chance.sample(QUOTAS, chance.randint(1, 2))
        limits = dict.fromkeys(keys, 1_000_000.0 + self._numbers)
        return await self._alter_quotas("set quotas", client, chance.choice(ENTITIES), limits)

    async def _remove_quotas(self, client: Client, chance: random.Random) -> Changes:
        limits = dict.fromkeys(chance.sample(QUOTAS, chance.randint(1, 2)))
        return await self._alter_quotas("remove quotas", client, chance.choice(ENTITIES), limits)

    async def _alter_quotas(
        self,
        what: str,
        client: Client,
        entity: tuple[tuple[str, str | None], ...],
        limits: Mapping[str, float | None],
    ) -> Changes:
        module = requests.schema("alter_client_quotas", 1)
        altered = module.EntryData(
            entity=tuple(module.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            ops=tuple(
                module.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in limits.items()
            ),
        )
        request = module.AlterClientQuotasRequest(entries=(altered,), validate_only=False)

        async def answered() -> None:
            requests.check((await client.send(request)).entries[0])

        return await self._ask(
            what, {quota_entry(entity, key): value for key, value in limits.items()}, answered()
        )

    # Looking in.

    async def watch(self) -> None:
        while self._session.world.loop.time() < self._session.ends_at:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """At what every node goes by, as far as it has read the metadata."""
        session = self._session
        nodes, shape = session.machines.nodes, session.machines.shape
        voters = [nodes[number] for number in shape.quorum if number in nodes]
        if 2 * len(voters) > len(shape.quorum):
            # What is committed is in the log of one of them at least.
            session.access.written_upto(max(node._broker.quorum.next_offset for node in voters))
        for number in shape.broker_ids:
            if number in nodes:
                read_upto = nodes[number]._broker.metadata.image.offset + 1
                session.access.seen(host_of(number), read_upto, in_force(nodes[number]))
                session.counts["path: access looked at"] += 1


def in_force(node: Node) -> Changes:
    """What it decides by now."""
    broker = node._broker
    assert broker.authorizer is not None and broker.quotas is not None
    found: Changes = {rule_entry(acl): True for acl in broker.authorizer.acls.by_id.values()}
    for entity, limits in broker.quotas._quotas.items():
        found.update({quota_entry(entity, key): value for key, value in limits.items()})
    for key, record in broker.metadata.image.carried.items():
        if key.kind is RecordType.USER_SCRAM_CREDENTIAL:
            credential = cast("UserScramCredentialRecord", record)
            found[credential_entry(credential.name, credential.mechanism)] = credential.iterations
    return found


async def described(client: Client) -> Changes:
    """What a broker says that there is."""
    module = requests.schema("describe_acls", 3)
    answer = await client.send(module.DescribeAclsRequest(**_ALL_RULES))
    requests.check(answer)
    found: Changes = {
        rule_entry(
            Acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
        ): True
        for resource in answer.resources
        for acl in resource.acls
    }
    module = requests.schema("describe_user_scram_credentials", 0)
    answer = await client.send(module.DescribeUserScramCredentialsRequest(users=None))
    requests.check(answer)
    for result in answer.results:
        requests.check(result)
        for info in result.credential_infos:
            found[credential_entry(result.user, int(info.mechanism))] = int(info.iterations)
    module = requests.schema("describe_client_quotas", 1)
    answer = await client.send(module.DescribeClientQuotasRequest(components=(), strict=False))
    requests.check(answer)
    for entry in answer.entries or ():
        entity = tuple((part.entity_type, part.entity_name) for part in entry.entity)
        found.update({quota_entry(entity, value.key): float(value.value) for value in entry.values})
    return found


async def _first_result(client: Client, request: Any) -> None:
    requests.check((await client.send(request)).results[0])


_ALL_RULES: dict[str, object] = {
    "resource_type_filter": AclResource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
