"""HTTP for connectors: one connection that is kept, authentication, TLS, and what to do about refusals."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.connect.data import plain
from ottla.connect.errors import ConnectError, DataError, RetriableError, SettingError
from ottla.connect.settings.definition import Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least
from ottla.connect.text import to_text

_FIRST_DELAY_S: Final = 0.2
_DELAY_S_MAX: Final = 5.0
_TOO_MANY: Final = 429
_TIMEOUT: Final = 408
_SERVER_ERROR: Final = 500
_SHOWN_CHARS_MAX: Final = 300
_SENDABLE: Final = re.compile(r"[!-~]+")


def as_json(value: Any) -> str:
    """Raises DataError for what JSON has no form for: a server would refuse all that is beside it, too."""
    try:
        return json.dumps(
            plain(value), ensure_ascii=False, separators=(",", ":"), default=to_text, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"the value has no JSON form: {error}") from error


def is_url(name: str, value: Any) -> None:
    try:
        parts = urlsplit(value or "")
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise SettingError.of(name, value, f"It is no address: {error}") from None
    if not is_address:
        raise SettingError.of(name, value, "It must be an address that begins with http:// or https://")
    if parts.username is not None:
        shown = value.replace(parts.netloc, parts.netloc.rpartition("@")[2])
        raise SettingError.of(
            name, shown, "Give user and password in connection.username and connection.password"
        )
    if not _SENDABLE.fullmatch(value):
        raise SettingError.of(name, value, "Write spaces and other than ASCII characters as %20 and the like")


CONNECTION: Final = Settings(
    Setting("connection.username", Type.STRING, None, Importance.MEDIUM, "For basic authentication."),
    Setting("connection.password", Type.PASSWORD, None, Importance.MEDIUM, "For basic authentication."),
    Setting(
        "connection.timeout.ms", Type.INT, 30_000, Importance.LOW, "How long an answer may take.", at_least(1)
    ),
    Setting(
        "ssl.ca.location",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "A PEM file of the authorities that the server's certificate is checked with; else the system's.",
    ),
    Setting(
        "ssl.verify",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        "Whether certificates are checked; false is for tests alone.",
    ),
    Setting(
        "retry.timeout.ms",
        Type.LONG,
        10_000,
        Importance.LOW,
        "How long a request that was refused for the time being (429, 5xx, no connection) is tried again, "
        "ever more seldom, before the task turns to its other duties and comes back to it.",
        at_least(0),
    ),
)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_fine(self) -> bool:
        return 200 <= self.status < 300

    @property
    def shown(self) -> str:
        return f"{self.status} {self.body.decode(errors='replace')[:_SHOWN_CHARS_MAX]}".strip()


class Caller:
    """For one server and one thread. `config` has the settings of CONNECTION."""

    def __init__(self, url: str, config: Mapping[str, Any], wait: Callable[[float], bool]) -> None:
        parts = urlsplit(url)
        self._address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._host, self._port = parts.hostname or "", parts.port
        self._timeout_s = config["connection.timeout.ms"] / 1000
        self._retry_s = config["retry.timeout.ms"] / 1000
        self._wait = wait
        self._context = None if parts.scheme == "http" else _tls(config)
        self._connection: http.client.HTTPConnection | None = None
        self._headers: dict[str, str] = {}
        if config["connection.username"] is not None:
            pair = f"{config['connection.username']}:{config['connection.password'] or ''}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """What the server says, be it good or bad. Raises RetriableError where it says nothing, or not
        now, for longer than `retry.timeout.ms`, and ConnectError for a wrong password."""
        delay_s, spent_s = _FIRST_DELAY_S, 0.0
        while True:
            answer, trouble = self._tried(method, path, body, {**self._headers, **(headers or {})})
            if answer is not None and not passes(answer.status):
                if answer.status in {401, 403}:
                    raise ConnectError(
                        f"{self._address} refuses this user: {answer.shown}; see connection.username and "
                        "connection.password"
                    )
                return answer
            if answer is not None:
                trouble = answer.shown
                delay_s = max(delay_s, _asked_s(answer))
            if spent_s >= self._retry_s or self._wait(delay_s):
                raise RetriableError(f"{method} {self._address}{path}: {trouble}")
            spent_s += delay_s
            delay_s = min(delay_s * 2, _DELAY_S_MAX)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tried(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[Answer | None, str]:
        try:
            if self._connection is None:
                self._connection = self._connected()
            self._connection.request(method, path, body, dict(headers))
            found = self._connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read()), ""
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ConnectError(
                f"{self._address}: certificate not trusted: {error.verify_message}; see ssl.ca.location"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return None, f"{type(error).__name__}: {error}"

    def _connected(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._context
        )


def _tls(config: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config["ssl.ca.location"])
    except OSError as error:
        raise ConnectError(f"ssl.ca.location={config['ssl.ca.location']}: {error}") from error
    if not config["ssl.verify"]:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def passes(status: int) -> bool:
    """Whether it may be otherwise a moment later."""
    return status in {_TOO_MANY, _TIMEOUT} or status >= _SERVER_ERROR


def _asked_s(answer: Answer) -> float:
    """How long the server wants to be left alone."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), _DELAY_S_MAX) if text.isdecimal() else 0.0
