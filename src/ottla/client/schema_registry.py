"""A schema registry's client, one per process and registry, and how records name their schema."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
# Answers about what was asked: there is no such schema, it is not compatible, it is none.
_ABOUT_SCHEMAS: Final = {404, 409, 422}


class RegistryClientMissing(Exception):
    """The text says what to install."""


class RegistryUnreachable(Exception):
    """A registry does not answer, or not with what it was asked for: that says nothing of a record or a
    schema, and may have passed the next time."""


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


def is_about_schemas(status: int) -> bool:
    """Whether an answer with this HTTP status would be the same if it was asked for again."""
    return status in _ABOUT_SCHEMAS


@contextmanager
def asking(url: str) -> Iterator[None]:
    """Raises RegistryUnreachable for whatever else than an answer about schemas Confluent's client raises."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        if is_about_schemas(error.http_status_code):
            raise
        raise RegistryUnreachable(f"the schema registry {url} answers with an error: {error}") from error
    except Exception as error:
        # The transport below has errors of its own, which are no OSErrors.
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "httpcore")):
            raise
        raise RegistryUnreachable(f"the schema registry {url} cannot be reached: {error}") from error


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
