"""What is made of a password for SCRAM (RFC 5802): by clients to prove it, by brokers to check the proof."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096  # RFC 7677; fewer would let an impostor guess the password cheaply


class ScramKeys(NamedTuple):
    """What a broker keeps: neither the password nor what proves it can be had from them."""

    stored: bytes
    server: bytes


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: that is what it is for."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", hash_name)


def scram_keys(hash_name: str, salted: bytes) -> ScramKeys:
    stored = hashlib.new(hash_name, client_key(hash_name, salted)).digest()
    return ScramKeys(stored, hmac.digest(salted, b"Server Key", hash_name))


def attributes(message: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in pairs}


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
