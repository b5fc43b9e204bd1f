from __future__ import annotations

import random

import pytest

from ottla.controller.acls import AclDeletion, create_acls, delete_acls
from ottla.controller.command import Deciding, Result
from ottla.metadata.image import MetadataImage
from ottla.wire.acls import Acl, AclFilter, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import ErrorCode

RNG = random.Random(1)
RULE = Acl(
    AclResource.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW
)
PREFIX = RULE._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
EVERY = RULE._replace(resource_name="*", principal="User:ben", host="10.0.0.1")
GROUP = RULE._replace(resource_type=AclResource.GROUP, operation=Operation.DELETE, permission=Permission.DENY)
ANY = AclFilter(AclResource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def decided(deciding: Deciding) -> Result:
    while True:
        try:
            next(deciding)
        except StopIteration as stop:
            return stop.value


def created(*acls: Acl, image: MetadataImage | None = None) -> tuple[MetadataImage, list[ErrorCode | None]]:
    image = image or MetadataImage()
    result = decided(create_acls(image, acls, RNG))
    after = image.apply_all(result.records, image.offset + len(result.records), 1)
    return after, [None if error is None else error.code for error in result.response]


def test_rules_are_created_once() -> None:
    image, errors = created(RULE, PREFIX, RULE)
    assert errors == [None, None, None]
    assert sorted(image.acls.by_id.values()) == sorted([RULE, PREFIX])
    again, errors = created(RULE, GROUP, image=image)
    assert errors == [None, None]
    assert len(again.acls) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": AclResource.ANY},
        {"resource_type": 99},
        {"pattern_type": PatternType.MATCH},
        {"operation": Operation.ANY},
        {"permission": Permission.UNKNOWN},
        {"resource_name": ""},
        {"resource_type": AclResource.CLUSTER},
        {"principal": "ann"},
        {"host": ""},
    ],
)
def test_what_makes_no_sense_is_refused_alone(change: dict[str, object]) -> None:
    image, errors = created(RULE._replace(**change), GROUP)
    assert errors == [ErrorCode.invalid_request, None]
    assert list(image.acls.by_id.values()) == [GROUP]


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        (ANY, [RULE, PREFIX, EVERY, GROUP]),
        (ANY._replace(resource_type=AclResource.GROUP), [GROUP]),
        (ANY._replace(resource_name="orders"), [RULE, GROUP]),
        (ANY._replace(resource_name="orders", pattern_type=PatternType.MATCH), [RULE, PREFIX, EVERY, GROUP]),
        (ANY._replace(resource_name="other", pattern_type=PatternType.MATCH), [EVERY]),
        (ANY._replace(pattern_type=PatternType.MATCH), [RULE, PREFIX, EVERY, GROUP]),
        (ANY._replace(pattern_type=PatternType.PREFIXED), [PREFIX]),
        (ANY._replace(pattern_type=PatternType.LITERAL, resource_name="ord"), []),
        (ANY._replace(principal="User:ben"), [EVERY]),
        (ANY._replace(host="*"), [RULE, PREFIX, GROUP]),
        (ANY._replace(operation=Operation.DELETE), [GROUP]),
        (ANY._replace(permission=Permission.DENY), [GROUP]),
    ],
)
def test_filters(wanted: AclFilter, matching: list[Acl]) -> None:
    image, _ = created(RULE, PREFIX, EVERY, GROUP)
    result = decided(delete_acls(image, [wanted, wanted]))
    deletion = AclDeletion(tuple(sorted(matching)))
    assert result.response == [deletion, deletion]
    assert len(result.records) == len(matching)
    after = image.apply_all(result.records, 100, 1)
    assert len(after.acls) == 4 - len(matching)


def test_an_unknown_filter_is_refused() -> None:
    image, _ = created(RULE)
    result = decided(delete_acls(image, [ANY._replace(operation=Operation.UNKNOWN)]))
    assert result.response[0].error.code is ErrorCode.invalid_request
    assert not result.records


def test_too_many_at_once_are_refused_together() -> None:
    many = [RULE._replace(resource_name=str(number)) for number in range(10_001)]
    result = decided(create_acls(MetadataImage(), many, RNG))
    assert not result.records
    assert {error.code for error in result.response} == {ErrorCode.invalid_request}
    image, _ = created(*many[:6000])
    image, _ = created(*many[6000:], image=image)
    result = decided(delete_acls(image, [ANY]))
    assert not result.records
    assert result.response[0].error.code is ErrorCode.invalid_request
