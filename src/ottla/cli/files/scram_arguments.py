"""`--add-scram`: credentials that a cluster begins with, as `SCRAM-SHA-512=[name=alice,password=…]`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from ottla.cli.framework.errors import ToolError
from ottla.client.scram_keys import HASHES, ITERATIONS_MIN, salted_password, scram_keys
from ottla.controller.scram_credentials import ITERATIONS_MAX, MECHANISMS, ScramUpsertion, credential_record
from ottla.metadata.foreign_records import UserScramCredentialRecord

_NUMBERS = {name: number for number, name in MECHANISMS.items()}
_SALT_BYTES = 24


def scram_record(argument: str, random_bytes: Callable[[int], bytes]) -> UserScramCredentialRecord:
    mechanism, separator, text = argument.strip().partition("=")
    if not separator:
        raise ToolError(f"Failed to find equals sign in SCRAM argument '{argument}'")
    if mechanism not in HASHES:
        raise ToolError(f"The add-scram mechanism {mechanism} is not supported.")
    if not text.startswith("["):
        raise ToolError("Expected configuration string to start with [")
    if not text.endswith("]"):
        raise ToolError("Expected configuration string to end with ]")
    given = {
        key.strip(): value.strip() for key, _, value in (p.partition("=") for p in text[1:-1].split(","))
    }
    name = given.pop("name", None)
    if name is None:
        raise ToolError("You must supply 'name' to add-scram")
    salt_text, salted_text = given.pop("salt", None), given.pop("saltedpassword", None)
    password, iterations_text = given.pop("password", None), given.pop("iterations", str(ITERATIONS_MIN))
    if given:
        raise ToolError(f"Unknown SCRAM configurations: {', '.join(sorted(given))}")
    if not iterations_text.isdecimal():
        raise ToolError(f"Failed to parse iterations count: {iterations_text}")
    iterations = int(iterations_text)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        bound = f">= {ITERATIONS_MIN}" if iterations < ITERATIONS_MIN else f"<= {ITERATIONS_MAX}"
        raise ToolError(f"The 'iterations' value must be {bound} for add-scram using {mechanism}")
    salt = random_bytes(_SALT_BYTES) if salt_text is None else _decoded("salt", salt_text)
    if password is not None:
        salted = salted_password(HASHES[mechanism], password, salt, iterations)
    elif salted_text is None:
        raise ToolError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif salt_text is None:
        raise ToolError("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _decoded("saltedPassword", salted_text)
    keys = scram_keys(HASHES[mechanism], salted)
    return credential_record(ScramUpsertion(name, _NUMBERS[mechanism], iterations, salt, keys))


def _decoded(what: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ToolError(f"Failed to decode given {what}: {text}") from None
