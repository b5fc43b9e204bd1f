"""For every API: who may not is refused as Apache Kafka refuses it, who has the permission is served."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from matrix import ANSWERS, CASES, Case, Cluster
from principals import Servers

from ottla.handlers.authorization import RULES
from ottla.handlers.registry import REGISTRY
from ottla.wire.api import ApiKey

WITHOUT_PERMISSIONS = {key for key, rule in RULES.items() if not rule.checks}
# Only who has logged in may ask for tokens, which nobody does here.
AFTER_LOGIN = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
EXPECTED = json.loads(ANSWERS.read_text())


def test_there_is_a_case_for_every_api() -> None:
    assert {case.api for case in CASES} == REGISTRY.keys() - WITHOUT_PERMISSIONS - AFTER_LOGIN
    assert EXPECTED.keys() == {case.name for case in CASES}


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


@pytest.mark.parametrize("api", sorted({case.api for case in CASES}), ids=lambda api: api.name)
def test_a_permission_makes_a_difference(api: ApiKey) -> None:
    found = [EXPECTED[case.name] for case in CASES if case.api is api]
    assert any(answer != answers["nothing"] for answers in found for answer in answers.values())


@pytest.fixture(scope="module")
def cluster(servers: Servers) -> Iterator[Cluster]:
    with connect(servers["admin"]) as admin, connect(servers["alice"]) as alice:
        yield Cluster(admin, alice)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_are_those_of_apache_kafka(cluster: Cluster, case: Case) -> None:
    answers = cluster.answers(case)
    assert answers == EXPECTED[case.name]
