"""One connection to one broker: requests leave at once, answers come back in their order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ottla.client.frames import NOT_KAFKA, Frames
from ottla.client.messages import AskCodec, ask_codec, versions_known
from ottla.client.security import PLAINTEXT, Security
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.net import Network
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, UnsupportedVersion

SOFTWARE_NAME = "ottla"
# A session is renewed well before the broker ends it, as Java's clients do.
SESSION_SHARE_USED = 0.85
# Below this a copy is cheaper than another buffer for the kernel to gather.
JOINED_BYTES_MAX = 16 * 1024

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id


Answer: TypeAlias = bytes | memoryview


class PeerLost(Exception):
    """The connection ended, or what came over it is not the protocol. The text names the address."""


class PeerUnusable(PeerLost):
    """Who listens there is no broker, or is not to be trusted; trying again would end the same way."""


class AuthenticationFailed(PeerUnusable):
    """The broker does not accept who we say we are."""


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
        self._waiting: deque[tuple[int, Callable[[Answer], Any], asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._lost: str | None = None
        self._expires_at_s: float | None = None
        self._is_retired = False

    @classmethod
    async def connect(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        software_version: str,
        security: Security = PLAINTEXT,
    ) -> Peer:
        """OSError when nobody listens there, PeerLost when it is no broker or does not let us in."""
        peer = cls(f"{host}:{port}", client_id, software_version)
        await network.connect(
            lambda: Frames(peer._connected, peer._answered, peer._ended), host, port, tls=security.tls
        )
        try:
            await peer._learn_versions()
            if security.mechanism is not None:
                await peer._authenticate(security)
        except BaseException as error:
            peer.close()
            if peer._lost == NOT_KAFKA:
                hint = "is security.protocol the one of that listener?"
                raise PeerUnusable(f"{error}; {hint}") from None
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
        answer = await self._ask_version(api_key, version, values or {})
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

    async def ask_raw(self, api_key: ApiKey, version: int, body: Sequence[ReadableBuffer]) -> memoryview:
        """A request packed by the caller; the body of the answer as it came, not copied."""
        codec = ask_codec(api_key, version)
        skipped = _LENGTH.size + (1 if codec.response_header_flexible else 0)
        answer: memoryview = await self._send(
            api_key, version, codec.flexible, body, lambda frame: memoryview(frame)[skipped:]
        )
        return answer

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    @property
    def is_expiring(self) -> bool:
        """Whether the broker is about to end the session; a new connection has to take over then."""
        return self._expires_at_s is not None and asyncio.get_running_loop().time() >= self._expires_at_s

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._ended("closed")

    def close_when_idle(self) -> None:
        """What was asked is still answered; nothing more may be asked."""
        self._is_retired = True
        if not self._waiting:
            self.close()

    async def _learn_versions(self) -> None:
        software = {
            "client_software_name": SOFTWARE_NAME,
            "client_software_version": self._software_version,
        }
        version = versions_known(ApiKey.API_VERSIONS)[1]
        answer = await self._ask_version(ApiKey.API_VERSIONS, version, software)
        if answer.error_code == ErrorCode.unsupported_version:
            # The refusal is written as version 0 and lists what would have been accepted.
            accepted = {api.api_key: api.max_version for api in answer.api_keys}
            version = min(accepted.get(ApiKey.API_VERSIONS, 0), version)
            answer = await self._ask_version(ApiKey.API_VERSIONS, version, software)
        if answer.error_code != ErrorCode.none:
            raise PeerLost(f"{self.address}: refused ApiVersions with {answer.error_code.name.upper()}")
        self.api_versions = ask_codec(ApiKey.API_VERSIONS, version).widen(answer)
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def _authenticate(self, security: Security) -> None:
        mechanism = security.mechanism
        assert mechanism is not None
        handshake = await self.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism}, version_max=1)
        if handshake.error_code != ErrorCode.none:
            raise AuthenticationFailed(
                f"{self.address}: does not take sasl.mechanism={mechanism}; "
                f"it takes {', '.join(handshake.mechanisms) or 'none'}"
            )
        exchange = security.exchange()
        message: bytes | None = next(exchange)
        lifetime_ms = 0.0
        while message is not None:
            answer = await self.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code != ErrorCode.none:
                reason = answer.error_message or answer.error_code.name.upper()
                raise AuthenticationFailed(f"{self.address}: refused the credentials ({mechanism}): {reason}")
            lifetime_ms = answer.session_lifetime.total_seconds() * 1000
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                message = None
            except ValueError as error:
                raise AuthenticationFailed(f"{self.address}: {error}") from error
        if lifetime_ms > 0:
            now_s = asyncio.get_running_loop().time()
            self._expires_at_s = now_s + SESSION_SHARE_USED * lifetime_ms / 1000

    async def _ask_version(self, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        codec = ask_codec(api_key, version)
        body = codec.write(values)
        return await self._send(
            api_key, version, codec.flexible, [body], lambda frame: self._read(codec, frame)
        )

    async def _send(
        self,
        api_key: ApiKey,
        version: int,
        flexible: bool,
        body: Sequence[ReadableBuffer],
        read: Callable[[Answer], Any],
    ) -> Any:
        if self._lost is not None or self._transport is None:
            raise PeerLost(f"{self.address}: {self._lost or 'not connected'}")
        self._correlation_id += 1
        header = _HEADER.pack(api_key, version, self._correlation_id, len(self._client_id)) + self._client_id
        if flexible:
            header += b"\0"
        length = _LENGTH.pack(len(header) + sum(len(part) for part in body))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, read, answer))
        if len(body) == 1 and len(body[0]) <= JOINED_BYTES_MAX:
            self._transport.write(length + header + body[0])
        else:
            self._transport.writelines([length + header, *body])
        return await answer

    def _connected(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def _answered(self, frame: Answer) -> None:
        if not self._waiting or len(frame) < 4 or _LENGTH.unpack_from(frame)[0] != self._waiting[0][0]:
            self._fail("sent an answer to nothing that was asked")
            return
        _, read, answer = self._waiting.popleft()
        if answer.cancelled():
            return
        try:
            answer.set_result(read(frame))
        except Exception as error:
            answer.set_exception(PeerLost(f"{self.address}: sent what cannot be read: {error}"))
            self._fail("sent what cannot be read")
        if self._is_retired and not self._waiting:
            self.close()

    def _read(self, codec: AskCodec, frame: Answer) -> Any:
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
