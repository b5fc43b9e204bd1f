"""One broker whose listeners are closed in all ways, and certificates and passwords that open them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from token_issuer import Issuer

from ottla.testing.in_process import InProcessBroker

LOGIN = "org.apache.kafka.common.security"
PLAIN_PASSWORD = "alice secret"
PLAIN_USERS = f'{LOGIN}.plain.PlainLoginModule required user_alice="{PLAIN_PASSWORD}" user_bob="bob";'
SCRAM_PASSWORD = "scram secret"


@dataclass(frozen=True)
class Files:
    """Paths, as text for properties."""

    authority: str
    server: str
    client: str
    expired: str
    unknown: str
    """Of another authority."""
    other_authority: str
    elsewhere: str
    """For a server on another host."""

    @property
    def home(self) -> Path:
        return Path(self.authority).parent


@dataclass(frozen=True)
class Closed:
    """Addresses by listener."""

    broker: InProcessBroker
    ports: dict[str, int]

    def __getitem__(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


def closed_settings(files: Files, issuer: Issuer) -> dict[str, str]:
    return {
        "listeners": ",".join(
            f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "TLS", "MUTUAL", "SASL", "BOTH", "ELSEWHERE")
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,SASL:SASL_PLAINTEXT,"
        "BOTH:SASL_SSL,ELSEWHERE:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.authority,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/U,DEFAULT",
        "listener.name.elsewhere.ssl.keystore.location": files.elsewhere,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        **issuer.settings,
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.both.plain.sasl.jaas.config": PLAIN_USERS,
        "connection.failed.authentication.delay.ms": "50",
        "delegation.token.secret.key": "known to all brokers",
    }
