"""A schema registry's client, one per process and registry, and how records name their schema."""

from __future__ import annotations

import functools
import struct
from typing import Any, Final

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")


class RegistryClientMissing(Exception):
    """The text says what to install."""


class NotFramed(ValueError):
    """Bytes that do not begin as those of a registry do."""


@functools.cache
def registry_client(url: str, properties: tuple[tuple[str, str], ...] = ()) -> Any:
    """Confluent's; it keeps what it has learnt. Raises RegistryClientMissing."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise RegistryClientMissing(
            f"a schema registry needs the package {error.name}: pip install 'ottla[schemas]'"
        ) from error
    return SchemaRegistryClient({"url": url, **dict(properties)})


def framed(schema_id: int, body: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, schema_id) + body


def unframed(data: bytes) -> tuple[int, bytes]:
    """The schema's id and what was written with it. Raises NotFramed."""
    if len(data) < _HEAD.size or data[0] != _MAGIC:
        raise NotFramed(
            f"{data[:8].hex(' ')}… does not begin with a zero and the id of a schema: it was not written "
            "with a schema registry"
        )
    return _HEAD.unpack_from(data)[1], data[_HEAD.size :]
