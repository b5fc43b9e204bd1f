"""UUIDs as Kafka shows and draws them: 22 characters of URL-safe base64, some values reserved."""

from __future__ import annotations

import base64
import binascii
from random import Random
from uuid import UUID

METADATA_TOPIC_ID = UUID(int=1)

# Of a replica's log directory: chosen by the broker but not told to the controller; not chosen yet; failed.
DIRECTORY_MIGRATING = UUID(int=0)
DIRECTORY_UNASSIGNED = UUID(int=1)
DIRECTORY_LOST = UUID(int=2)

# Kafka keeps the first hundred for such meanings.
RESERVED_MAX = 99


def uuid_text(value: UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Raises ValueError for anything that is not 16 bytes of URL-safe base64."""
    try:
        if "+" in text or "/" in text:
            raise binascii.Error("the alphabet that is not URL-safe")
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not URL-safe base64: {error}") from error
    if len(data) != 16:
        raise ValueError(f"{text!r} holds {len(data)} bytes, a UUID has 16")
    return UUID(bytes=data)


def random_uuid(random: Random) -> UUID:
    """Version 4, never reserved, and without "-" in its text, which command lines would take for a flag."""
    while True:
        value = UUID(int=random.getrandbits(128), version=4)
        if value.int > RESERVED_MAX and "-" not in uuid_text(value):
            return value
