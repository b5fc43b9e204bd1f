"""How long a client waits for what; Kafka's clients have settings of these names with the same defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CONNECT_TIMEOUT_MS = 10_000  # socket.connection.setup.timeout.ms
REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms
API_TIMEOUT_MS = 60_000  # default.api.timeout.ms
RETRY_BACKOFF_MS = 100  # retry.backoff.ms


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float
    request_s: float
    api_s: float
    """For all attempts at one thing together."""
    backoff_s: float

    @property
    def request_ms(self) -> int:
        return round(self.request_s * 1000)


def timeouts_from_properties(properties: Mapping[str, str]) -> Timeouts:
    """ValueError names the property that is no number."""
    api_s = _seconds(properties, "default.api.timeout.ms", API_TIMEOUT_MS)
    request_s = _seconds(properties, "request.timeout.ms", REQUEST_TIMEOUT_MS)
    return Timeouts(
        connect_s=_seconds(properties, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS),
        # One attempt may not outlast them all.
        request_s=min(request_s, api_s),
        api_s=api_s,
        backoff_s=_seconds(properties, "retry.backoff.ms", RETRY_BACKOFF_MS),
    )


def _seconds(properties: Mapping[str, str], name: str, default_ms: int) -> float:
    value = properties.get(name, str(default_ms)).strip()
    if not value.isdecimal():
        raise ValueError(f"{name}={value}: must be a whole number of milliseconds")
    return int(value) / 1000
