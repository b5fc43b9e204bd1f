"""A connection that sends whatever bytes a test wants, well-formed or not, and requests built with kio."""

from __future__ import annotations

import datetime
import io
import socket
import struct
import time
from pathlib import Path
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.serial import entity_reader, entity_writer

CLIENT_ID = b"raw"
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
API_VERSIONS = 18
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
KIB = 1024


class RawConnection:
    def __init__(self, bootstrap_servers: str, timeout_s: float = 20, from_host: str | None = None) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s, from_host and (from_host, 0))
        # A reset leaves no TIME_WAIT behind, so that a hundred thousand connections do not use up the ports.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next answer, its correlation id first."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def call(self, api_key: int, version: int, request: Any) -> Any:
        self.send(request_frame(api_key, version, request))
        return parse_response(api_key, version, self.receive())

    def was_closed(self) -> bool:
        """Waits for whatever comes first: the end of the stream, or an answer."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(count)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    fixed = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    flexible = load_request_schema(api_key, version).__header_schema__.__version__ >= 2
    return fixed + b"\0" if flexible else fixed


def encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request_frame(api_key: int, version: int, request: Any) -> bytes:
    return framed(header(api_key, version) + encode(request))


def parse_response(api_key: int, version: int, payload: bytes) -> Any:
    response_type = load_response_schema(api_key, version)
    at = 5 if response_type.__header_schema__.__version__ >= 1 else 4
    response, _ = entity_reader(response_type)(memoryview(payload), at)
    return response


def api_versions(connection: RawConnection) -> dict[int, range]:
    """What the broker says it speaks, by API key."""
    response = connection.call(API_VERSIONS, 0, load_request_schema(API_VERSIONS, 0)())
    return {int(api.api_key): range(api.min_version, api.max_version + 1) for api in response.api_keys}


def wait_for_coordinator(connection: RawConnection, group: str, timeout_s: float = 20) -> None:
    """Until the group's coordinator answers, which takes a moment on a new broker."""
    find = load_request_schema(FIND_COORDINATOR, 0)(key=group)
    heartbeat = load_request_schema(HEARTBEAT, 0)(group_id=group, generation_id=1, member_id="nobody")
    deadline = time.monotonic() + timeout_s
    while (
        connection.call(FIND_COORDINATOR, 0, find).error_code != ErrorCode.none
        or connection.call(HEARTBEAT, 0, heartbeat).error_code != ErrorCode.unknown_member_id
    ):
        assert time.monotonic() < deadline, f"there is no coordinator for {group}"
        time.sleep(0.01)


def join_group_frame(group: str, timeout_s: float = 30) -> bytes:
    """The first member of a group waits for group.initial.rebalance.delay.ms."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    timeout = datetime.timedelta(seconds=timeout_s)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout=timeout,
        rebalance_timeout=timeout,
        member_id="",
        group_instance_id="one",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    return request_frame(JOIN_GROUP, 5, request)


def private_memory_bytes(pid: int) -> int:
    """Memory the process itself holds; pages of mapped files are the kernel's to drop."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    raise AssertionError("no RssAnon in /proc/pid/status")
