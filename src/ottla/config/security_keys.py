"""Broker keys of who may come in: TLS, SASL, delegation tokens.

All but the last kind may be set for one listener, as `listener.name.<name>.<key>`, those of SASL also for one
mechanism of it, as `listener.name.<name>.<mechanism>.<key>`; see `listener_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.key import ConfigKey, ConfigType, by_name

_STORE_TYPES = ("PEM", "PKCS12", "JKS")
_JAVA = "Python's TLS has no such choice."
_HOUR_MS = 3_600_000

TLS_KEYS = (
    ConfigKey(
        "ssl.keystore.type",
        ConfigType.STRING,
        "JKS",
        "Format of ssl.keystore.location: PEM, or PKCS12, which needs `pip install 'ottla[security]'`. Which "
        "of them a file is, Ottla sees for itself. JKS is refused, with the command that converts it.",
        choices=_STORE_TYPES,
        dynamic="per-broker",
        effective=False,
    ),
    ConfigKey(
        "ssl.keystore.location",
        ConfigType.STRING,
        None,
        "File with the certificate of a listener, those that lead to its authority, and the private key. It "
        "is read again when it changes.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        "Password of a PKCS12 file.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.key.password",
        ConfigType.PASSWORD,
        None,
        "Password of the private key, where that is encrypted.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.keystore.key",
        ConfigType.PASSWORD,
        None,
        "The private key itself, in PEM, instead of ssl.keystore.location.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain",
        ConfigType.PASSWORD,
        None,
        "The certificate itself and those that lead to its authority, in PEM; goes with ssl.keystore.key.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.truststore.type",
        ConfigType.STRING,
        "JKS",
        "Format of ssl.truststore.location, as ssl.keystore.type.",
        choices=_STORE_TYPES,
        dynamic="per-broker",
        effective=False,
    ),
    ConfigKey(
        "ssl.truststore.location",
        ConfigType.STRING,
        None,
        "File with the authorities that certificates of clients and of other nodes must come from. It is "
        "read again when it changes.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.truststore.password",
        ConfigType.PASSWORD,
        None,
        "Password of a PKCS12 file.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.truststore.certificates",
        ConfigType.PASSWORD,
        None,
        "The authorities themselves, in PEM, instead of ssl.truststore.location.",
        importance="high",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        "Whether clients have to show a certificate: required, requested, none. On SASL_SSL listeners it "
        "counts only with the listener's prefix, as in Apache Kafka.",
        choices=("required", "requested", "none"),
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        ConfigType.STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a principal: RULE:pattern/replacement/[LU], "
        "separated by commas, the first that fits; DEFAULT is the whole name.",
        importance="low",
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        ConfigType.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that are spoken.",
        choices=("TLSv1.2", "TLSv1.3"),
        required=True,
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.protocol",
        ConfigType.STRING,
        "TLSv1.3",
        "Newest version of TLS that is spoken. ssl.enabled.protocols says which are.",
        choices=("TLSv1.2", "TLSv1.3", "TLS"),
        effective=False,
    ),
    ConfigKey(
        "ssl.cipher.suites",
        ConfigType.LIST,
        (),
        "Cipher suites of TLS 1.2, by OpenSSL's or IANA's names; empty for those that are safe today. Those "
        "of TLS 1.3 are all safe and not chosen.",
        dynamic="per-broker",
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "https",
        "How this node makes sure that another is who it wants to reach: https compares the host name with "
        "the certificate, empty does not.",
        importance="low",
    ),
    *(
        ConfigKey(name, ConfigType.STRING, default, f"{what} {_JAVA}", importance="low", effective=False)
        for name, default, what in (
            ("ssl.provider", None, "Provider of TLS."),
            ("ssl.secure.random.implementation", None, "Source of randomness."),
            ("ssl.keymanager.algorithm", "SunX509", "How keys are chosen."),
            ("ssl.trustmanager.algorithm", "PKIX", "How certificates are trusted."),
        )
    ),
)

SASL_KEYS = (
    ConfigKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        "How clients may prove who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI, which "
        "is the default as in Apache Kafka, is not served: name the others.",
        dynamic="per-broker",
    ),
    ConfigKey(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        "A line as in Java's login files: as whom this node goes to others (username, password) and, with "
        'PLAIN, whom it lets in (user_alice="…"). Set it for a listener and a mechanism: '
        "`listener.name.<name>.<mechanism>.sasl.jaas.config`.",
        dynamic="per-broker",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "How this broker proves who it is to other brokers.",
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "How this node proves who it is to controllers.",
        importance="high",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        512 * 1024,
        "Largest message of a client that has not proved who it is. Ottla takes no more than 64 kB from such "
        "a client, whatever this says.",
        minimum=1024,
    ),
    ConfigKey(
        "sasl.server.callback.handler.class",
        ConfigType.STRING,
        None,
        "Java class that checks credentials. Ottla checks them itself.",
        effective=False,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "Time after which clients have to prove again who they are; who does not is cut off at its next "
        "request. 0 asks for it never, except where a token expires.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        ConfigType.STRING,
        None,
        "Where the public keys are with which OAUTHBEARER tokens are signed, as a JWKS: https://… or "
        "file:/…. They are fetched in the background, at the start and from time to time, never for a login. "
        "The address is trusted by the system's certificates and the listener's trust store, or by "
        "ssl.truststore.location in the JAAS line of OAUTHBEARER alone. Needs "
        "`pip install 'ottla[security]'`.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "How often the public keys are fetched again.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "How soon after a failure the public keys are fetched again; each further failure doubles it.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "How long that becomes at most.",
        minimum=1,
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        ConfigType.LIST,
        (),
        "Audiences of which a token must name one; empty takes tokens for everybody.",
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        ConfigType.STRING,
        None,
        "Issuer that a token must name.",
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "How far the clocks of issuer and broker may be apart.",
        minimum=0,
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        ConfigType.STRING,
        "scope",
        "Claim of a token that has its scope.",
        importance="low",
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        ConfigType.STRING,
        "sub",
        "Claim of a token that has the principal's name.",
        importance="low",
    ),
)

TOKEN_KEYS = (
    ConfigKey(
        "delegation.token.secret.key",
        ConfigType.PASSWORD,
        None,
        "Secret that delegation tokens are made and checked with, the same on every node. Without it there "
        "are none.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        7 * 24 * _HOUR_MS,
        "Longest life of a delegation token, however often it is renewed.",
        minimum=1,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        24 * _HOUR_MS,
        "Time until a delegation token has to be renewed.",
        minimum=1,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        _HOUR_MS,
        "How often expired delegation tokens are removed.",
        minimum=1,
        importance="low",
    ),
)

SECURITY_KEYS = (*TLS_KEYS, *SASL_KEYS, *TOKEN_KEYS)
OF_LISTENER: Mapping[str, ConfigKey] = by_name(TLS_KEYS, SASL_KEYS)
OF_MECHANISM: Mapping[str, ConfigKey] = by_name(SASL_KEYS)
