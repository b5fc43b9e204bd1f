"""Commands for SCRAM credentials and delegation tokens, as Apache Kafka's controller decides them."""

from __future__ import annotations

import random

import pytest
from deciding import decided

from ottla.cli.files.scram_arguments import scram_record
from ottla.cli.framework.errors import ToolError
from ottla.client.scram_keys import ScramKeys
from ottla.controller.delegation_tokens import (
    TokenSettings,
    create_token,
    expire_token,
    remove_expired,
    renew_token,
)
from ottla.controller.scram_credentials import ScramDeletion, ScramUpsertion, alter_scram_credentials
from ottla.metadata.bootstrap import FILE_NAME, read_bootstrap, write_bootstrap
from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import image_records
from ottla.sim.disk import SimDisk
from ottla.wire.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)

KEYS = ScramKeys(b"stored", b"server")
ALICE = ScramUpsertion("alice", 1, 4096, b"salt", KEYS)


def after(image: MetadataImage, records: object) -> MetadataImage:
    return image.apply_all(records, image.offset + 1, 1)  # type: ignore[arg-type]


def codes(
    image: MetadataImage, deletions: list[ScramDeletion], upsertions: list[ScramUpsertion]
) -> dict[str, str]:
    result = decided(alter_scram_credentials(image, deletions, upsertions))
    return {each.user: each.error.code.name if each.error else "none" for each in result.response}


def test_credentials_come_and_go_and_survive_a_snapshot() -> None:
    image = after(MetadataImage(), decided(alter_scram_credentials(MetadataImage(), [], [ALICE])).records)
    kept = after(MetadataImage(), list(image_records(image)))
    assert kept.carried == image.carried and len(kept.carried) == 1
    gone = decided(alter_scram_credentials(image, [ScramDeletion("alice", 1)], []))
    assert not after(image, gone.records).carried


def test_a_user_is_refused_for_itself() -> None:
    unknown = ScramUpsertion("eve", 3, 4096, b"s", None)
    assert codes(
        MetadataImage(),
        [ScramDeletion("bob", 1), ScramDeletion("dan", 9), ScramDeletion("", 1)],
        [
            ALICE,
            unknown,
            ALICE._replace(user="few", iterations=4095),
            ALICE._replace(user="many", iterations=16385),
            ALICE._replace(user="twice"),
            ALICE._replace(user="twice", mechanism=2),
        ],
    ) == {
        "alice": "none",
        "bob": "resource_not_found",
        "dan": "unsupported_sasl_mechanism",
        "": "unacceptable_credential",
        "eve": "unsupported_sasl_mechanism",
        "few": "unacceptable_credential",
        "many": "unacceptable_credential",
        "twice": "duplicate_resource",
    }


SETTINGS = TokenSettings("secret", lifetime_max_ms=1000, renewed_for_ms=100)


def with_token(lifetime_ms: int = -1, now_ms: int = 0) -> tuple[MetadataImage, bytes]:
    made = create_token(SETTINGS, "id", "User:alice", "User:alice", ["User:bob"], lifetime_ms, now_ms)
    return after(MetadataImage(), made.records), made.response.hmac


def test_a_token_is_renewed_by_owner_and_renewers_up_to_its_end() -> None:
    image, hmac = with_token()
    assert renew_token(image, SETTINGS, hmac, "User:bob", 50, 10).response == 60
    assert renew_token(image, SETTINGS, hmac, "User:alice", -1, 10).response == 110
    short, hmac = with_token(lifetime_ms=30)
    assert renew_token(short, SETTINGS, hmac, "User:alice", 50, 10).response == 30
    with pytest.raises(DelegationTokenOwnerMismatch):
        renew_token(image, SETTINGS, hmac, "User:eve", 50, 10)
    with pytest.raises(DelegationTokenExpired):
        renew_token(image, SETTINGS, hmac, "User:alice", 50, 101)
    with pytest.raises(DelegationTokenNotFound):
        renew_token(image, SETTINGS, b"another", "User:alice", 50, 10)


def test_a_token_expires_when_it_is_told_to_and_is_removed_then() -> None:
    image, hmac = with_token()
    sooner = expire_token(image, SETTINGS, hmac, "User:alice", 20, 10)
    assert sooner.response == 30
    image = after(image, sooner.records)
    assert not remove_expired(image, 30).records
    assert not after(image, remove_expired(image, 31).records).carried
    at_once = expire_token(image, SETTINGS, hmac, "User:bob", -1, 500)
    assert not after(image, at_once.records).carried


def test_there_are_no_tokens_without_a_secret_and_for_users_alone() -> None:
    with pytest.raises(DelegationTokenAuthDisabled):
        create_token(SETTINGS._replace(secret=None), "id", "User:a", "User:a", [], -1, 0)
    with pytest.raises(InvalidPrincipalType):
        create_token(SETTINGS, "id", "User:a", "User:a", ["Group:b"], -1, 0)


def test_what_format_adds_a_new_cluster_begins_with() -> None:
    disk = SimDisk(0)
    disk.make_dirs("/data")
    assert read_bootstrap(disk, "/data") == []
    salted = "SCRAM-SHA-512=[name=bob,salt=c2FsdA==,saltedpassword=cGFzcw==,iterations=8192]"
    arguments = ["SCRAM-SHA-256=[name=alice,password=wonder land]", salted]
    records = [scram_record(each, random.Random(1).randbytes) for each in arguments]
    write_bootstrap(disk, "/data", records, 5)
    assert disk.exists(f"/data/{FILE_NAME}")
    assert read_bootstrap(disk, "/data") == records
    assert (records[1].salt, records[1].iterations, records[1].mechanism) == (b"salt", 8192, 2)


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("x", "equals sign"),
        ("MD5=[name=a,password=b]", "MD5 is not supported"),
        ("SCRAM-SHA-256=name=a", "start with"),
        ("SCRAM-SHA-256=[name=a", "end with"),
        ("SCRAM-SHA-256=[password=a]", "'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=cGFzcw==]", "supply 'salt'"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=1]", ">= 4096"),
        ("SCRAM-SHA-256=[name=a,password=b,colour=red]", "Unknown SCRAM configurations: colour"),
    ],
)
def test_what_is_no_credential_is_said(argument: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        scram_record(argument, random.Random(1).randbytes)
