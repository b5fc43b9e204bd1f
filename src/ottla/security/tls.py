"""TLS of a listener: the certificate it shows, whom it trusts, and what it makes of the other side's."""

from __future__ import annotations

import logging
import ssl

from ottla.client.pem_stores import SecurityError
from ottla.client.tls_stores import load_authorities, load_identity, store_files
from ottla.config import ConfigError
from ottla.config.listener_settings import ListenerSettings
from ottla.runtime.private_files import file_stamp
from ottla.security.principal_rules import PrincipalRules

log = logging.getLogger(__name__)

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_CHACHA = "CHACHA20-POLY1305"


class ListenerTls:
    """`context` is for the next connection; those that are open keep the one they began with."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._settings = settings
        self._stamps = _stamps(settings)
        self.context = server_context(settings)
        self.rules = PrincipalRules(settings.string("ssl.principal.mapping.rules"))

    def renew(self, settings: ListenerSettings | None = None) -> None:
        """Take files that changed, or other settings. What cannot be used leaves things as they are."""
        wanted = settings or self._settings
        stamps = _stamps(wanted)
        is_same = stamps == self._stamps and _said(wanted) == _said(self._settings)
        self._settings = wanted
        if is_same:
            return
        self._stamps = stamps
        try:
            self.context = server_context(wanted)
        except ConfigError as error:
            log.error("listener %s keeps the certificates it has: %s", wanted.name, error)
        else:
            log.info("listener %s has new certificates, or other settings of TLS", wanted.name)

    def principal(self, transport_tls: ssl.SSLObject | None) -> str | None:
        """Of a client that has shown a certificate."""
        certificate = None if transport_tls is None else transport_tls.getpeercert()
        return self.rules.principal(certificate) if certificate else None


def server_context(settings: ListenerSettings) -> ssl.SSLContext:
    """ConfigError names the listener and what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        _choose_protocols(context, settings)
        properties = settings.tls_properties()
        if not load_identity(context, properties):
            raise SecurityError(
                "it has no certificate; set ssl.keystore.location to a PEM file with certificate and key"
            )
        context.verify_mode = _VERIFY[settings.client_auth]
        has_authorities = load_authorities(context, properties)
        if context.verify_mode is not ssl.CERT_NONE and not has_authorities:
            raise SecurityError(
                f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location: whose certificates "
                "are to be trusted"
            )
    except SecurityError as error:
        raise ConfigError(f"listener {settings.name} ({settings.protocol}): {error}") from error
    return context


def _choose_protocols(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    wanted = settings.strings("ssl.enabled.protocols")
    suites = settings.strings("ssl.cipher.suites")
    old_suites = [openssl_name(suite) for suite in suites if not _is_of_tls_1_3(suite)]
    speaks_old = "TLSv1.2" in wanted and (bool(old_suites) or not suites)
    if not speaks_old and "TLSv1.3" not in wanted:
        raise SecurityError(f"ssl.cipher.suites={','.join(suites)}: none of them is of TLSv1.2")
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if speaks_old else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in wanted else ssl.TLSVersion.TLSv1_2
    if speaks_old and old_suites:
        try:
            context.set_ciphers(":".join(old_suites))
        except ssl.SSLError:
            raise SecurityError(f"ssl.cipher.suites={','.join(suites)}: OpenSSL has none of them") from None


def _is_of_tls_1_3(suite: str) -> bool:
    return suite.startswith("TLS_") and "_WITH_" not in suite


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, as Java has it, is ECDHE-RSA-AES256-GCM-SHA384 there."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    if cipher.startswith(_CHACHA):
        cipher = _CHACHA
    exchange = exchange.replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"


def _stamps(settings: ListenerSettings) -> tuple[object, ...]:
    stamps = [(path, file_stamp(path)) for path in store_files(settings.tls_properties())]
    return tuple(stamps)


def _said(settings: ListenerSettings) -> tuple[object, ...]:
    return (
        settings.tls_properties(),
        settings.client_auth,
        settings.strings("ssl.enabled.protocols"),
        settings.strings("ssl.cipher.suites"),
    )
