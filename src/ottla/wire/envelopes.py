"""What is in an Envelope, in which a broker hands a client's request on to the active controller (KIP-590).

The request travels as the client sent it, header and all, with who the client is; the answer comes back in
the same way, so that the broker in between need not understand either.
"""

from __future__ import annotations

import io
import ipaddress
import struct

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_reader, entity_writer

_VERSION = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")


def pack_principal(principal: str, *, is_by_token: bool = False) -> bytes:
    """Of `User:name`, as Apache Kafka's brokers write it by default."""
    kind, _, name = principal.partition(":")
    buffer = io.BytesIO(_VERSION.pack(0))
    buffer.seek(_VERSION.size)
    entity_writer(DefaultPrincipalData)(
        buffer, DefaultPrincipalData(type_=kind, name=name, token_authenticated=is_by_token)
    )
    return buffer.getvalue()


def unpack_principal(data: bytes) -> tuple[str, bool]:
    """With whether it came with a delegation token. Raises ValueError for one of another kind."""
    if len(data) < _VERSION.size or _VERSION.unpack_from(data)[0] != 0:
        raise ValueError("the principal is written in a way that is not known here")
    found, _ = entity_reader(DefaultPrincipalData)(data, _VERSION.size)
    return f"{found.type_}:{found.name}", found.token_authenticated


def pack_host(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        # A socket without addresses, as in a simulation.
        return ipaddress.IPv4Address(0).packed


def unpack_host(data: bytes) -> str:
    """Raises ValueError for what is no address."""
    return str(ipaddress.ip_address(data))


def pack_answer(correlation_id: int, flexible: bool, body: bytes) -> bytes:
    return _CORRELATION_ID.pack(correlation_id) + (b"\0" if flexible else b"") + body


def unpack_answer(data: bytes, flexible: bool) -> memoryview:
    """The body alone. Headers of answers have no tagged fields yet."""
    return memoryview(data)[_CORRELATION_ID.size + flexible :]
