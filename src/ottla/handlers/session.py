"""Who is at the other end of a connection. Made once when it opens, and handed to every handler.

Whatever depends on who asks belongs here: what a client is called, where it comes in and as whom it is taken;
how long it is to wait before it asks again. So that none of it costs a request anything, it changes only when
the client says something else. A client that has yet to prove who it is finds next to nothing in `apis`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from kio.static.primitive import i32Timedelta

from ottla.handlers.registry import REGISTRY, Apis
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.security.authorizer import Authorizer, Permissions
from ottla.security.quotas import ClientLimits, ClientQuotas
from ottla.wire.primitives import read_nullable_string

if TYPE_CHECKING:
    from ottla.security.sasl.authentication import Authentication

ANONYMOUS = "User:ANONYMOUS"
SOFTWARE_LENGTH_MAX = 255
_CLIENT_ID_AT = 8
_UNSEEN = -2
"""No length of a client id."""
_NO_FIELD = b"\0"
"""Shorter than any."""


class Session:
    __slots__ = (
        "address",
        "apis",
        "authentication",
        "authorizer",
        "client_id",
        "client_id_ends",
        "client_id_field",
        "client_id_length",
        "host",
        "is_by_token",
        "is_replica",
        "limits",
        "listener",
        "on_closed",
        "on_throttled",
        "permissions",
        "principal",
        "quotas",
        "served",
        "software_name",
        "software_version",
        "throttle_ms",
    )

    def __init__(self, listener: str, host: str, port: int, apis: Apis = REGISTRY) -> None:
        self.listener = listener
        self.served = apis
        """What is served there, to whom it may."""
        self.apis = apis
        """What is served to this client now."""
        self.authentication: Authentication | None = None
        """How the client proves who it is; None where nobody asks for it."""
        self.is_by_token = False
        """It came with a delegation token."""
        self.is_replica = False
        """It is another broker, and fetches as a follower."""
        self.host = host
        self.address = f"{host}:{port}"
        self.principal = ANONYMOUS
        self.authorizer: Authorizer | None = None
        """Decides what this client may do; None: everything."""
        self.permissions: Permissions | None = None
        """What it decided, see `security.authorizer`."""
        self.quotas: ClientQuotas | None = None
        """Count what this client does; None: nobody does."""
        self.limits: ClientLimits | None = None
        """What they found, see `security.quotas`."""
        self.client_id: str | None = None
        """As in the last request that was looked at for it, see `see_client_id`."""
        self.client_id_length = _UNSEEN
        """In bytes, as the header of a request has it."""
        self.client_id_ends = 0
        """Where a header of that length goes on."""
        self.client_id_field = _NO_FIELD
        """All of it, with the length."""
        self.software_name: str | None = None
        self.software_version: str | None = None
        """Both None until ApiVersions has told."""
        self.on_closed: Callable[[], None] | None = None
        """Called when the connection is gone, whoever closed it."""
        self.throttle_ms = 0
        """What answers say that the client has to wait."""
        self.on_throttled: Callable[[int], None] | None = None
        """Called with how long no request is to be read, in milliseconds."""

    def throttle(self, wait_ms: int) -> None:
        if self.on_throttled is not None:
            self.on_throttled(wait_ms)

    @property
    def throttle_time(self) -> i32Timedelta:
        """As kio wants it."""
        if not self.throttle_ms:
            return NOT_THROTTLED
        return i32Timedelta.parse(timedelta(milliseconds=self.throttle_ms))

    @property
    def client_host(self) -> str:
        """As Kafka shows it: the address, with a slash where a name would stand."""
        return "/" + self.host

    def see_client_id(self, frame: memoryview, length: int) -> int:
        """Note the client id in a request's header; where the header goes on.

        Clients call themselves the same all the time: where it does not matter, hot requests only do this if
        the length changes.
        """
        client_id, at = read_nullable_string(frame, _CLIENT_ID_AT)
        self.client_id, self.client_id_length, self.client_id_ends = client_id, length, at
        self.client_id_field = bytes(frame[_CLIENT_ID_AT:at])
        return at

    def has_client_id_of(self, frame: memoryview) -> bool:
        return frame[_CLIENT_ID_AT : self.client_id_ends] == self.client_id_field

    def identify_software(self, name: str, version: str) -> None:
        self.software_name = name[:SOFTWARE_LENGTH_MAX]
        self.software_version = version[:SOFTWARE_LENGTH_MAX]
