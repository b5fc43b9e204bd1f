"""Tokens of OAUTHBEARER: JWTs, whose signature, time, issuer and audience are checked.

Only signatures with a public key count (`jwks.py`): with a shared one, or with none, anybody who can check a
token could make one. Tokens without a signature are for development, and taken only where the
JAAS line says so with an option that begins with `unsecured`.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.jaas import jaas_options
from ottla.config import ConfigError
from ottla.config.listener_settings import ListenerSettings
from ottla.runtime import Runtime
from ottla.security.sasl.exchange import Granted, LoginRefused
from ottla.security.sasl.jwks import URL, Jwks

log = logging.getLogger(__name__)

MECHANISM = "OAUTHBEARER"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_INVALID = '{"status":"invalid_token"}'


def bearer_tokens(runtime: Runtime, settings: ListenerSettings) -> SignedTokens | UnsecuredTokens:
    """ConfigError where it is not said how tokens are to be checked."""
    url = settings.optional_string(URL, MECHANISM)
    if url:
        return SignedTokens(runtime, settings, url)
    options = jaas_options(settings.jaas(MECHANISM))
    if any(name.startswith("unsecured") for name in options):
        log.warning(
            "listener %s takes OAUTHBEARER tokens that nobody has signed: anybody can be anyone there",
            settings.name,
        )
        return UnsecuredTokens(runtime, settings, options)
    raise ConfigError(
        f"listener {settings.name}: OAUTHBEARER needs {URL}, where the keys are "
        'that tokens are signed with; for development alone, unsecuredLoginStringClaim_sub="…" in the JAAS '
        "line takes tokens without a signature"
    )


_TIMES_MAX = 1e12
"""In seconds; no token means such a time."""


class SignedTokens:
    def __init__(self, runtime: Runtime, settings: ListenerSettings, url: str) -> None:
        self._claims = _Claims(runtime, settings)
        self._url = url
        self._decode, read_keys = _jose(url)
        self.jwks = Jwks(runtime, settings, url, read_keys)

    async def verify(self, token: str) -> Granted:
        header = _json_part(token, 0)
        keys = await self.jwks.with_key(header.get("kid"))
        if keys is None:
            raise LoginRefused(_INVALID, f"the keys at {self._url} could not be had yet")
        try:
            claims = self._decode(token, keys)
        except Exception as error:
            raise LoginRefused(_INVALID, f"its signature does not count: {error}") from error
        return self._claims.granted(claims)


class UnsecuredTokens:
    jwks = None

    def __init__(self, runtime: Runtime, settings: ListenerSettings, options: Mapping[str, str]) -> None:
        self._claims = _Claims(runtime, settings, options.get("unsecuredValidatorPrincipalClaimName"))

    async def verify(self, token: str) -> Granted:
        if str(_json_part(token, 0).get("alg")).lower() != "none" or not token.endswith("."):
            raise LoginRefused(_INVALID, f"it is signed, and there is no {URL}")
        return self._claims.granted(_json_part(token, 1))


class _Claims:
    """What a token has to say besides being genuine."""

    def __init__(self, runtime: Runtime, settings: ListenerSettings, subject: str | None = None) -> None:
        self._clock = runtime.clock
        self._audiences = set(settings.strings("sasl.oauthbearer.expected.audience", MECHANISM))
        self._issuer = settings.optional_string("sasl.oauthbearer.expected.issuer", MECHANISM)
        self._skew_s = settings.integer("sasl.oauthbearer.clock.skew.seconds", MECHANISM)
        self._subject = subject or settings.string("sasl.oauthbearer.sub.claim.name", MECHANISM)
        self._scope = settings.string("sasl.oauthbearer.scope.claim.name", MECHANISM)

    def granted(self, claims: Mapping[str, Any]) -> Granted:
        now_s = self._clock.now_ms() / 1000
        expires_s = self._time(claims, "exp")
        self._time(claims, "iat")
        if expires_s + self._skew_s <= now_s:
            raise LoginRefused(_INVALID, "it has expired")
        if "nbf" in claims and self._time(claims, "nbf") - self._skew_s > now_s:
            raise LoginRefused(_INVALID, "it does not count yet")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise LoginRefused(_INVALID, f"it is of issuer {claims.get('iss')!r}")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        named = {each for each in audiences if isinstance(each, str)}
        if self._audiences and not self._audiences & named:
            raise LoginRefused(_INVALID, f"it is for {', '.join(sorted(named)) or 'no audience'}")
        scope = claims.get(self._scope, "")
        if not isinstance(scope, str | list | tuple):
            raise LoginRefused(_INVALID, f"its claim {self._scope} is no scope")
        subject = claims.get(self._subject)
        if not isinstance(subject, str) or not subject.strip():
            raise LoginRefused(_INVALID, f"its claim {self._subject} names nobody")
        if not _is_unicode(subject):
            raise LoginRefused(_INVALID, f"its claim {self._subject} has halves of characters")
        return Granted(f"User:{subject}", expires_at_ms=int(expires_s * 1000))

    @staticmethod
    def _time(claims: Mapping[str, Any], name: str) -> float:
        value = claims.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _TIMES_MAX:
            raise LoginRefused(_INVALID, f"its claim {name} is no time")
        return float(value)


def _is_unicode(text: str) -> bool:
    r"""JSON may have halves of characters (`"\ud800"`), which no answer and no record can have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _jose(url: str) -> tuple[Callable[[str, Any], Mapping[str, Any]], Callable[[Any], Any]]:
    try:
        from joserfc import jwt
        from joserfc.jwk import KeySet
    except ModuleNotFoundError as error:
        raise ConfigError(f"{URL}={url}: needs the package joserfc: pip install 'ottla[security]'") from error

    def decode(token: str, keys: Any) -> Mapping[str, Any]:
        return jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims

    return decode, KeySet.import_key_set


def _json_part(token: str, index: int) -> dict[str, Any]:
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError("it has not three parts")
        part = json.loads(base64.urlsafe_b64decode(parts[index] + "=" * (-len(parts[index]) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise LoginRefused(_INVALID, f"it is no JWT: {error}") from error
    if not isinstance(part, dict):
        raise LoginRefused(_INVALID, "it is no JWT")
    return part
