"""Decisions are those of Apache Kafka's StandardAuthorizer: as its rules say, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.access_records import AccessControlEntryRecord
from ottla.metadata.acls import Acls, AclsInTheMaking
from ottla.security.authorizer import Authorizer, Permissions, Verdict, hosts_matching
from ottla.wire.acls import Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import AuthorizerNotReady

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = AclResource.TOPIC


@dataclass
class Client:
    principal: str = "User:ann"
    host: str = "10.0.0.1"
    permissions: Permissions | None = None


def rule(
    name: str = "orders",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:ann",
    host: str = "*",
    kind: AclResource = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def acls_of(*rules: Acl, before: Acls | None = None) -> Acls:
    before = before or Acls()
    making = AclsInTheMaking(before)
    for number, acl in enumerate(rules, len(before)):
        making.add(record(number, acl))
    return making.finish()


def record(number: int, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number + 1),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def authorizer(*rules: Acl, super_users: frozenset[str] = frozenset(), allow: bool = False) -> Authorizer:
    made = Authorizer(super_users, allow_without_rules=allow)
    made.acls = acls_of(*rules)
    return made


def verdict(
    made: Authorizer,
    operation: Operation = Operation.READ,
    name: str = "orders",
    client: Client | None = None,
) -> Verdict:
    return made.permissions(client or Client()).verdict(operation, TOPIC, name)


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    assert not verdict(authorizer()).allowed
    assert verdict(authorizer()).reason == "DefaultDeny"
    assert not verdict(authorizer(rule(principal="User:ben"))).allowed


def test_a_rule_allows_what_it_names_and_nothing_else() -> None:
    made = authorizer(rule())
    assert verdict(made).rule == rule()
    assert not verdict(made, name="order").allowed
    assert not verdict(made, name="orders2").allowed
    assert not verdict(made, Operation.WRITE).allowed


def test_super_users_may_whatever_rules_say() -> None:
    made = authorizer(rule(permission=DENY), super_users=frozenset({"User:ann"}))
    assert verdict(made).reason == "SuperUser"


def test_before_the_rules_are_known_super_users_alone_are_let_through() -> None:
    made = authorizer(rule(), super_users=frozenset({"User:root"}), allow=True)
    loaded = False
    made.is_loaded = lambda: loaded
    client = Client()
    with pytest.raises(AuthorizerNotReady, match=r"User:ann is not in its super\.users"):
        verdict(made, client=client)
    assert verdict(made, client=Client("User:root")).allowed
    loaded = True
    assert verdict(made, client=client).rule == rule()


@pytest.mark.parametrize(
    ("about", "allowed"),
    [
        (rule("invoices"), True),
        (rule(principal="User:ben"), False),
        (rule("*", principal="User:ben"), False),
        (rule("ord", principal="User:ben", pattern=PREFIXED), False),
        (rule("ordx", principal="User:ben", pattern=PREFIXED), True),
        (rule(principal="User:ben", kind=AclResource.GROUP), True),
    ],
)
def test_what_no_rule_is_about_may_be_open_to_everybody(about: Acl, allowed: bool) -> None:
    found = verdict(authorizer(about, allow=True))
    assert found.allowed is allowed
    assert found.reason == ("DefaultAllow" if allowed else "DefaultDeny")


@pytest.mark.parametrize(
    "denying",
    [
        rule(permission=DENY),
        rule("*", permission=DENY),
        rule("o", permission=DENY, pattern=PREFIXED),
        rule(permission=DENY, principal="User:*"),
        rule(permission=DENY, host="10.0.0.1"),
        rule(permission=DENY, operation=Operation.ALL),
    ],
)
def test_denying_counts_more_than_allowing(denying: Acl) -> None:
    for allowing in (rule(), rule("*"), rule("orders", pattern=PREFIXED)):
        assert verdict(authorizer(allowing, denying)).rule == denying
        assert verdict(authorizer(denying, allowing)).rule == denying


def test_hosts() -> None:
    made = authorizer(rule(host="10.0.0.1"))
    assert verdict(made).allowed
    assert not verdict(made, client=Client(host="10.0.0.2")).allowed
    assert hosts_matching("::1") == {"*", "::1", "0:0:0:0:0:0:0:1"}
    assert "10.0.0.1" in hosts_matching("::ffff:10.0.0.1")
    assert hosts_matching("?") == {"*", "?"}


@pytest.mark.parametrize("operation", list(Operation))
def test_what_is_implied(operation: Operation) -> None:
    implying = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    itself = (Operation.DESCRIBE, Operation.ALL)
    allowed = verdict(authorizer(rule(operation=operation)), Operation.DESCRIBE).allowed
    assert allowed is (operation in (*implying, *itself))
    of_configs = verdict(authorizer(rule(operation=operation)), Operation.DESCRIBE_CONFIGS).allowed
    assert of_configs is (operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL))
    # Denying implies nothing.
    allows, denies = rule(operation=Operation.DESCRIBE), rule(operation=operation, permission=DENY)
    assert verdict(authorizer(allows, denies), Operation.DESCRIBE).allowed is (operation not in itself)


def test_decisions_do_not_outlive_the_rules_nor_the_principal() -> None:
    made = authorizer(rule())
    client = Client()
    permissions = made.permissions(client)
    permissions.remember(permissions.writable[False], b"orders")
    assert made.permissions(client) is permissions
    made.acls = acls_of()
    assert not verdict(made, client=client).allowed
    assert not any(made.permissions(client).writable)
    made.acls = acls_of(rule())
    assert verdict(made, client=client).allowed
    client.principal = "User:ben"
    assert not verdict(made, client=client).allowed


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.security.authorizer.REMEMBERED_MAX", 10)
    permissions = authorizer(rule("*")).permissions(Client())
    for number in range(100):
        assert permissions.verdict(Operation.READ, TOPIC, str(number)).allowed
        permissions.remember(permissions.readable[True], str(number).encode())
        assert len(permissions._verdicts) <= 10
        assert len(permissions.readable[True]) <= 10


NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", "*"])
RULES = st.builds(
    Acl,
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:ann", "User:ben", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([ALLOW, DENY]),
)


def _expected(rules: list[Acl], operation: Operation, name: str, allow_without_rules: bool) -> bool:
    """As documented, without any index."""
    about = [
        acl
        for acl in rules
        if acl.resource_type == TOPIC
        and (
            (acl.pattern_type == LITERAL and acl.resource_name in (name, "*"))
            or (acl.pattern_type == PREFIXED and name.startswith(acl.resource_name))
        )
    ]
    mine = [acl for acl in about if acl.principal in ("User:ann", "User:*") and acl.host in ("*", "10.0.0.1")]
    if any(acl.permission == DENY and acl.operation in (Operation.ALL, operation) for acl in mine):
        return False
    wanted = {Operation.ALL, operation}
    if operation is Operation.DESCRIBE:
        wanted |= {Operation.READ, Operation.WRITE}
    if any(acl.permission == ALLOW and acl.operation in wanted for acl in mine):
        return True
    return allow_without_rules and not about


@given(
    st.lists(RULES, max_size=8),
    st.lists(st.integers(0, 7), max_size=4),
    st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    NAMES,
    st.booleans(),
)
def test_the_index_finds_what_counts(
    rules: list[Acl], gone: list[int], operation: Operation, name: str, allow: bool
) -> None:
    made = authorizer(*rules, allow=allow)
    making = AclsInTheMaking(made.acls)
    for number in gone:
        making.remove(UUID(int=number + 1))
    made.acls = making.finish()
    left = [acl for number, acl in enumerate(rules) if number not in gone]
    assert sorted(made.acls.by_id.values()) == sorted(left)
    assert verdict(made, operation, name).allowed is _expected(left, operation, name, allow)
    if not left:
        assert made.acls == Acls(prefix_lengths=made.acls.prefix_lengths)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ((), False),
        ((rule("a", Operation.WRITE),), True),
        ((rule("a", Operation.READ),), False),
        ((rule("a", Operation.ALL, pattern=PREFIXED),), True),
        ((rule("*", Operation.WRITE),), True),
        ((rule("a", Operation.WRITE), rule("a", Operation.WRITE, DENY)), False),
        ((rule("ab", Operation.WRITE), rule("a", Operation.WRITE, DENY, pattern=PREFIXED)), False),
        ((rule("ab", Operation.WRITE), rule("b", Operation.WRITE, DENY, pattern=PREFIXED)), True),
        ((rule("a", Operation.WRITE), rule("*", Operation.ALL, DENY)), False),
        ((rule("a", Operation.WRITE, host="10.0.0.2"),), False),
        ((rule("a", Operation.WRITE, principal="User:ben"),), False),
        ((rule("a", Operation.WRITE, kind=AclResource.GROUP),), False),
    ],
)
def test_whether_any_topic_may_be_written(rules: tuple[Acl, ...], allowed: bool) -> None:
    permissions = authorizer(*rules).permissions(Client())
    assert permissions.allows_for_any(Operation.WRITE, TOPIC) is allowed
