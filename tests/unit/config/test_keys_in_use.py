"""The reference says which keys have no effect; this keeps it honest by looking who reads them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import ottla
from ottla.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey

SOURCE = Path(ottla.__file__).parent
# These declare keys, check them against each other or give them values, which is not yet an effect.
NOT_READERS = {
    "access_keys.py",
    "cluster_keys.py",
    "coordinator_keys.py",
    "log_keys.py",
    "server_keys.py",
    "topic_keys.py",
}
NOT_READERS |= {"rules.py", "share_keys.py", "security_keys.py", "topic.py", "settings.py"}
# These name keys of clients, some of which brokers have too, or set those of a broker.
CLIENTS = {"cli", "client", "sim", "spark", "streams"}
# Asking for what this version cannot do stops the start: that is the effect of these.
ENFORCED_BY_RULES = {
    "broker.id",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "process.roles",
}
BROKER_SYNONYMS = {synonym.name: key for key in TOPIC_KEYS.values() for synonym in key.synonyms}


@cache
def words_of_the_code() -> tuple[frozenset[str], frozenset[str]]:
    """Every string and every attribute name in the package, declarations of keys aside."""
    strings: set[str] = set()
    attributes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent.name in {"config", "testing"} and path.name in NOT_READERS:
            continue
        if CLIENTS & set(path.relative_to(SOURCE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
    return frozenset(strings), frozenset(attributes)


def is_read(key: ConfigKey) -> bool:
    strings, attributes = words_of_the_code()
    if key.name in strings or key.name in ENFORCED_BY_RULES:
        return True
    if key.name == "cleanup.policy":
        return bool({"cleanup_compact", "cleanup_delete"} & attributes)
    return key.name in TOPIC_KEYS and key.name.replace(".", "_") in attributes


def test_a_key_without_effect_is_marked_and_no_other() -> None:
    wrong = []
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        topic_key = BROKER_SYNONYMS.get(key.name)
        used = is_read(key) or (topic_key is not None and is_read(topic_key))
        if used != key.effective and not key.internal:
            wrong.append(f"{key.name}: effective={key.effective}, but it is {'' if used else 'not '}read")
    assert wrong == []
