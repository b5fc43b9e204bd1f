"""kio's messages by API and version, presented to handlers as one type per API: the newest version's.

Requests of older versions are widened to the newest class, with the schema's defaults for what they lack.
Responses are written by the negotiated version's writer, which takes the fields that version has and ignores
the rest. A handler therefore never looks at the version unless behaviour itself changed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple

# kio registers Hypothesis strategies if it can import Hypothesis; in a development environment that
# would cost a broker 120 ms and 12 MB at start.
_hidden = "hypothesis" not in sys.modules
if _hidden:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError
finally:
    if _hidden:
        del sys.modules["hypothesis"]

from ottla.wire.nullable import allow_null  # noqa: E402
from ottla.wire.screening import screened, walker  # noqa: E402
from ottla.wire.upgrades import AS_RECEIVED, find_upgrade  # noqa: E402

__all__ = ["Codec", "SerialError", "codec", "field_defaults", "newest_version", "widen"]


class Codec(NamedTuple):
    """How one version of one API is read and written."""

    flexible: bool
    """Whether the request header ends with tagged fields."""
    response_header_flexible: bool
    read: Callable[[memoryview, int], Any]
    write: Callable[[Any], bytes]


@cache
def newest_version(api_key: int) -> int:
    from kio.schema.index import api_key_map, schema_name_map

    return max(schema_name_map[api_key_map[api_key]])


@cache
def codec(api_key: int, version: int) -> Codec:
    """Raises kio's KioIndexError for versions it does not know."""
    request_type = load_request_schema(api_key, version)
    response_type = allow_null(api_key, load_response_schema(api_key, version))
    newest_module = sys.modules[load_request_schema(api_key, newest_version(api_key)).__module__]
    read_entity = entity_reader(request_type)
    write_entity = entity_writer(response_type)
    is_seen_as_sent = version == newest_version(api_key) or api_key in AS_RECEIVED
    upgrade = None if is_seen_as_sent else find_upgrade(api_key)

    walk = walker(request_type)

    def read(frame: memoryview, at: int) -> Any:
        frame, at = screened(walk, frame, at)
        # kio refuses writable buffers; it copies what it reads, so the frame may be reused afterwards.
        request, _ = read_entity(frame.toreadonly(), at)
        if is_seen_as_sent:
            return request
        widened = widen(request, newest_module)
        return widened if upgrade is None else upgrade(request, widened)

    def write(response: Any) -> bytes:
        buffer = io.BytesIO()
        write_entity(buffer, response)
        return buffer.getvalue()

    return Codec(
        request_type.__header_schema__.__version__ >= 2,
        response_type.__header_schema__.__version__ >= 1,
        read,
        write,
    )


def widen(old: Any, newest_module: Any) -> Any:
    newest_type = getattr(newest_module, type(old).__name__, None)
    if newest_type is None:
        return old
    values: dict[str, Any] = {}
    for name, default in field_defaults(newest_type):
        value = getattr(old, name, default)
        if isinstance(value, tuple) and value and hasattr(value[0], "__type__"):
            value = tuple(widen(item, newest_module) for item in value)
        elif hasattr(value, "__type__"):
            value = widen(value, newest_module)
        values[name] = value
    return newest_type(**values)


_ZERO_BY_KAFKA_TYPE = {"string": "", "bool": False, "uuid": None, "bytes": b"", "records": None}


@cache
def field_defaults(entity_type: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Each field with the value an older request implies for it."""
    result = []
    for field in fields(entity_type):
        if field.default is not MISSING:
            default: Any = field.default
        elif "tuple[" in str(field.type):
            default = ()
        elif "None" in str(field.type):
            default = None
        else:
            default = _ZERO_BY_KAFKA_TYPE.get(field.metadata.get("kafka_type", "int32"), 0)
        result.append((field.name, default))
    return tuple(result)
