"""`kafka-acls` and `kafka-configs` for quotas, against a broker with an authorizer; in the words of Apache
Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from principals import Servers

from ottla.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(servers: Servers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(
        tool: str, *arguments: str, principal: str = "admin", answer: str | None = None
    ) -> tuple[int, str, str]:
        def given() -> str:
            if answer is None:
                raise EOFError
            return answer

        monkeypatch.setattr("builtins.input", given)
        capsys.readouterr()
        try:
            status = main([tool, "--bootstrap-server", servers[principal], *arguments])
        except SystemExit as left:
            status = int(left.code or 0)
        captured = capsys.readouterr()
        return int(status or 0), captured.out, captured.err

    return run


ORDERS = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
READING = "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)"


def test_rules_come_are_listed_and_go(run: Run) -> None:
    adding = ("--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
    status, out, _ = run("acls", *adding)
    assert status == 0
    assert out == f"Adding ACLs for resource `{ORDERS}`: \n \t{READING}\n\n"
    assert run("acls", *adding)[1] == f"Acl (pattern={ORDERS}, entry={READING}) already exists.\n"
    assert run("acls", "--list", "--topic", "orders")[1] == (
        f"Current ACLs for resource `{ORDERS}`:\n\t{READING}\n\n"
    )
    assert run("acls", "--list", "--principal", "User:ben")[1] == "ACLs for principal `User:ben`\n"
    mine = run("acls", "--list", "--principal", "User:ann")[1]
    assert mine.startswith("ACLs for principal `User:ann`\nCurrent ACLs for resource")
    # Removing is asked about.
    removing = ("--remove", *adding[1:])
    status, out, _ = run("acls", *removing, answer="n")
    assert out == (
        f"Are you sure you want to remove ACLs: \n \t{READING}\n from resource filter `{ORDERS}`? (y/n)\n"
    )
    assert READING in run("acls", "--list")[1]
    assert "--force" in run("acls", *removing)[2]
    assert run("acls", *removing, answer="y")[0] == 0
    assert run("acls", "--list")[1] == ""


def test_roles(run: Run) -> None:
    status, _, _ = run(
        *("acls", "--add", "--allow-principal", "User:ann", "--producer", "--consumer", "--idempotent"),
        *("--topic", "p", "--group", "g", "--transactional-id", "t", "--allow-host", "10.0.0.1"),
    )
    assert status == 0
    listed = run("acls", "--list")[1]
    for kind, name, operations in (
        ("TOPIC", "p", ("WRITE", "DESCRIBE", "CREATE", "READ")),
        ("GROUP", "g", ("READ",)),
        ("TRANSACTIONAL_ID", "t", ("WRITE", "DESCRIBE")),
        ("CLUSTER", "kafka-cluster", ("IDEMPOTENT_WRITE",)),
    ):
        pattern = f"ResourcePattern(resourceType={kind}, name={name}, patternType=LITERAL)"
        section = listed.split(f"`{pattern}`:\n")[1].split("\n\n")[0]
        assert set(section.splitlines()) == {
            f"\t(principal=User:ann, host=10.0.0.1, operation={operation}, permissionType=ALLOW)"
            for operation in operations
        }
    for option, name in (("--topic", "p"), ("--group", "g"), ("--transactional-id", "t")):
        assert run("acls", "--remove", option, name, "--force")[0] == 0
    assert run("acls", "--remove", "--cluster", "--force")[0] == 0
    assert run("acls", "--list")[1] == ""


def test_prefixes_are_found_by_match(run: Run) -> None:
    run(
        *("acls", "--add", "--deny-principal", "User:*", "--topic", "ord"),
        *("--resource-pattern-type", "prefixed", "--deny-host", "10.0.0.1"),
    )
    entry = "(principal=User:*, host=10.0.0.1, operation=ALL, permissionType=DENY)"
    matching = run("acls", "--list", "--topic", "orders", "--resource-pattern-type", "match")[1]
    assert entry in matching
    assert run("acls", "--list", "--topic", "orders")[1] == ""
    assert run("acls", "--remove", "--topic", "ord", "--resource-pattern-type", "any", "--force")[0] == 0
    assert run("acls", "--list")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one action"),
        (("--add", "--list"), "exactly one action"),
        (("--add", "--topic", "t"), "--allow-principal, --deny-principal"),
        (("--add", "--allow-principal", "User:a"), "at least one resource"),
        (("--add", "--allow-principal", "a", "--topic", "t"), "must be as User:a"),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Fly"),
            "must be one of All, Read",
        ),
        (
            ("--add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"),
            "ResourceType GROUP only supports operations [ALL, READ, DELETE",
        ),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
            "is not valid when adding acls",
        ),
        (("--add", "--allow-principal", "User:a", "--producer"), "you must specify a --topic"),
        (("--add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "a --topic and a --group"),
        (("--list", "--producer"), "can't be used with option --producer"),
        (("--add", "--principal", "User:a"), "only available if --list"),
        (("--add", "--idempotent", "--topic", "t"), "only available if --producer"),
    ],
)
def test_what_makes_no_sense(run: Run, arguments: tuple[str, ...], message: str) -> None:
    status, _, err = run("acls", *arguments)
    assert status == 1
    assert message in err


def test_who_may_not_is_told(run: Run) -> None:
    status, _, err = run("acls", "--list", principal="alice")
    assert status == 1
    assert "DESCRIBE the cluster" in err
    status, _, err = run("topics", "--create", "--topic", "mine", principal="alice")
    assert status == 1
    assert "Authorization failed" in err


def test_quotas_by_kafka_configs(run: Run) -> None:
    altering = ("configs", "--alter", "--entity-type", "users", "--entity-name", "ann")
    assert run(*altering, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")[0] == 0
    described = run("configs", "--describe", "--entity-type", "users")[1]
    assert "user-principal 'ann'" in described
    assert "producer_byte_rate=1024.0" in described
    assert run(*altering, "--delete-config", "producer_byte_rate")[0] == 0
    assert "producer_byte_rate" not in run("configs", "--describe", "--entity-type", "users")[1]
    both = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c")
    assert run("configs", "--alter", *both, "--add-config", "request_percentage=50")[0] == 0
    assert "request_percentage=50.0" in run("configs", "--describe", *both)[1]
    status, _, err = run(*altering, "--add-config", "producer_byte_rate=0")
    assert status == 1
    assert "must be greater than 0" in err
