"""The asking side of the protocol: requests from plain values, answers as the newest class of their API.

A caller gives values by kio's field names and need not know which version the other broker speaks: fields
that the version lacks are left out, fields that are not given take the schema's defaults. Answers of older
versions are widened, as requests are on the serving side.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, get_args

from ottla.wire.messages import field_defaults, newest_version, widen
from ottla.wire.nullable import allow_null
from ottla.wire.screening import screened, walker

__all__ = ["AskCodec", "ask_codec", "versions_known"]


class AskCodec(NamedTuple):
    """How one version of one API is asked, and its answer read."""

    flexible: bool
    response_header_flexible: bool
    write: Callable[[Mapping[str, Any]], bytes]
    read: Callable[[bytes | memoryview, int], Any]
    widen: Callable[[Any], Any]
    """From this version's answer to the newest version's."""


@cache
def versions_known(api_key: int) -> tuple[int, int]:
    """The oldest and the newest version there is a codec for."""
    from kio.schema.index import api_key_map, schema_name_map

    return min(schema_name_map[api_key_map[api_key]]), newest_version(api_key)


@cache
def ask_codec(api_key: int, version: int) -> AskCodec:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    request_type = load_request_schema(api_key, version)
    response_type = allow_null(api_key, load_response_schema(api_key, version))
    newest_module = sys.modules[load_response_schema(api_key, newest_version(api_key)).__module__]
    write_entity = entity_writer(request_type)
    read_entity = entity_reader(response_type)

    def write(values: Mapping[str, Any]) -> bytes:
        buffer = io.BytesIO()
        write_entity(buffer, _build(request_type, values))
        return buffer.getvalue()

    def read(data: bytes | memoryview, at: int) -> Any:
        try:
            return read_entity(data, at)[0]
        except (KeyError, ValueError):
            # A broker that is newer tells more than kio knows, and periods may be longer than it can hold.
            walk = walker(response_type)  # type: ignore[arg-type]
            data, at = screened(walk, memoryview(data), at)
            return read_entity(data, at)[0]

    def widen_response(response: Any) -> Any:
        return widen(response, newest_module)

    return AskCodec(
        request_type.__header_schema__.__version__ >= 2,
        response_type.__header_schema__.__version__ >= 1,
        write,
        read,
        widen_response,
    )


def _build(entity_type: type[Any], values: Mapping[str, Any]) -> Any:
    defaults = dict(field_defaults(entity_type))  # type: ignore[arg-type]
    built: dict[str, Any] = {}
    for field in fields(entity_type):
        value = values.get(field.name, defaults[field.name])
        if value is not None and (nested := _nested_type(field.type)) is not None:
            if isinstance(value, Mapping):
                value = _build(nested, value)
            elif isinstance(value, list | tuple):
                value = tuple(_build(nested, item) for item in value)
        elif isinstance(value, list):
            value = tuple(value)
        elif str(field.metadata.get("kafka_type")).startswith("timedelta") and isinstance(value, int):
            value = timedelta(milliseconds=value)
        built[field.name] = value
    return entity_type(**built)


def _nested_type(annotation: Any) -> type[Any] | None:
    """The structure a field holds, or holds many of; None for plain values."""
    if is_dataclass(annotation):
        return annotation if isinstance(annotation, type) else None
    for part in get_args(annotation):
        if (nested := _nested_type(part)) is not None:
            return nested
    return None
