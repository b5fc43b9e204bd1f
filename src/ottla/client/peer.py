"""One connection to one broker: requests leave at once, answers come back in their order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.messages import AskCodec, ask_codec, versions_known
from ottla.runtime.net import Network
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, UnsupportedVersion

SOFTWARE_NAME = "ottla"
# What a request may ask of our memory; the first bytes of another protocol read as far more.
ANSWER_BYTES_MAX = 512 * 1024 * 1024

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id


class PeerLost(Exception):
    """The connection ended, or what came over it is not the protocol. The text names the address."""


class Peer:
    """`connect` makes one and learns what the broker can do; many callers may `ask` at the same time."""

    def __init__(self, address: str, client_id: str, software_version: str) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.api_versions: Any = None
        """The broker's whole answer to ApiVersions, with its features."""
        self._client_id = client_id.encode()
        self._software_version = software_version
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: deque[tuple[int, AskCodec, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._lost: str | None = None

    @classmethod
    async def connect(
        cls, network: Network, host: str, port: int, *, client_id: str, software_version: str
    ) -> Peer:
        """OSError when nobody listens there, PeerLost when it is no broker."""
        peer = cls(f"{host}:{port}", client_id, software_version)
        await network.connect(lambda: _Answers(peer._connected, peer._answered, peer._ended), host, port)
        try:
            await peer._learn_versions()
        except BaseException:
            peer.close()
            raise
        return peer

    async def ask(
        self, api_key: ApiKey, values: Mapping[str, Any] | None = None, *, version_max: int | None = None
    ) -> Any:
        """The answer to the newest version that both sides know, as the newest class of its API.

        Newer versions drop fields, too. A caller that relies on such a one gives the last version that has it
        as `version_max`, and gets the answer as that version, or the older one agreed on, has it.
        """
        version = self.version(api_key, version_max)
        answer = await self._send(api_key, version, values or {})
        return answer if version_max is not None else ask_codec(api_key, version).widen(answer)

    def version(self, api_key: ApiKey, version_max: int | None = None) -> int:
        oldest_known, newest_known = versions_known(api_key)
        if version_max is not None:
            newest_known = min(newest_known, version_max)
        oldest, newest = self.versions.get(api_key, (0, -1))
        version = min(newest, newest_known)
        if version < max(oldest, oldest_known):
            offered = f"versions {oldest} to {newest}" if newest >= 0 else "not at all"
            raise UnsupportedVersion(
                f"{self.address} serves {api_key.name} {offered}, "
                f"this side versions {oldest_known} to {newest_known}"
            )
        return version

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._ended("closed")

    async def _learn_versions(self) -> None:
        software = {
            "client_software_name": SOFTWARE_NAME,
            "client_software_version": self._software_version,
        }
        version = versions_known(ApiKey.API_VERSIONS)[1]
        answer = await self._send(ApiKey.API_VERSIONS, version, software)
        if answer.error_code == ErrorCode.unsupported_version:
            # The refusal is written as version 0 and lists what would have been accepted.
            accepted = {api.api_key: api.max_version for api in answer.api_keys}
            version = min(accepted.get(ApiKey.API_VERSIONS, 0), version)
            answer = await self._send(ApiKey.API_VERSIONS, version, software)
        if answer.error_code != ErrorCode.none:
            raise PeerLost(f"{self.address}: refused ApiVersions with {answer.error_code.name.upper()}")
        self.api_versions = ask_codec(ApiKey.API_VERSIONS, version).widen(answer)
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def _send(self, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        if self._lost is not None or self._transport is None:
            raise PeerLost(f"{self.address}: {self._lost or 'not connected'}")
        codec = ask_codec(api_key, version)
        self._correlation_id += 1
        header = _HEADER.pack(api_key, version, self._correlation_id, len(self._client_id)) + self._client_id
        body = header + (b"\0" if codec.flexible else b"") + codec.write(values)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, codec, answer))
        self._transport.write(_LENGTH.pack(len(body)) + body)
        return await answer

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def _answered(self, frame: bytes) -> None:
        if not self._waiting or len(frame) < 4 or _LENGTH.unpack_from(frame)[0] != self._waiting[0][0]:
            self._fail("sent an answer to nothing that was asked")
            return
        _, codec, answer = self._waiting.popleft()
        if answer.cancelled():
            return
        try:
            answer.set_result(self._read(codec, frame))
        except Exception as error:
            answer.set_exception(PeerLost(f"{self.address}: sent what cannot be read: {error}"))
            self._fail("sent what cannot be read")

    def _read(self, codec: AskCodec, frame: bytes) -> Any:
        at = 4 + (1 if codec.response_header_flexible else 0)
        refused_versions = codec is ask_codec(ApiKey.API_VERSIONS, versions_known(ApiKey.API_VERSIONS)[1])
        if refused_versions and frame[4:6] == _UNSUPPORTED_VERSION:
            codec = ask_codec(ApiKey.API_VERSIONS, 0)
        return codec.read(frame, at)

    def _fail(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._ended(reason)

    def _ended(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
        while self._waiting:
            _, _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(PeerLost(f"{self.address}: {self._lost}"))


_UNSUPPORTED_VERSION = struct.pack(">h", ErrorCode.unsupported_version)


class _Answers(asyncio.Protocol):
    """Cuts the stream of bytes into answers."""

    def __init__(
        self,
        connected: Callable[[asyncio.WriteTransport], None],
        answered: Callable[[bytes], None],
        ended: Callable[[str], None],
    ) -> None:
        self._on_connected = connected
        self._on_answer = answered
        self._on_end = ended
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._on_connected(transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not 0 <= length <= ANSWER_BYTES_MAX:
                self._on_end("does not answer as a Kafka broker would")
                if self._transport is not None:
                    self._transport.abort()
                return
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            self._on_answer(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end(str(exc) if exc is not None else "closed the connection")
