"""OAUTHBEARER: tokens signed with a key of a JWKS, and those that are not to be trusted."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from closed_broker import LOGIN, Files
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from joserfc.jwk import ECKey
from token_issuer import AUDIENCE, ISSUER, Issuer

from ottla.testing.in_process import InProcessBroker

LOCAL = "127.0.0.1"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module")
def broker(issuer: Issuer, files: Files) -> Iterator[InProcessBroker]:
    settings = {
        "listeners": f"SASL_SSL://{LOCAL}:0",
        "ssl.keystore.location": files.server,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **issuer.settings,
        "connection.failed.authentication.delay.ms": "50",
    }
    with InProcessBroker(settings) as started:
        yield started


@pytest.fixture(scope="module")
def gets_in(broker: InProcessBroker, files: Files) -> Callable[..., bool]:
    def gets_in(token: str, timeout: float = 1.0) -> bool:
        def fetch(_: Any) -> tuple[str, float]:
            return token, time.time() + 60

        client = AdminClient(
            {
                "bootstrap.servers": f"{LOCAL}:{broker.port}",
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": files.authority,
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": fetch,
                "log_level": 0,
                "reconnect.backoff.ms": 500,
            }
        )
        client.poll(0)
        try:
            return bool(client.list_topics(timeout=timeout).brokers)
        except KafkaException:
            return False

    return gets_in


def test_a_token_of_the_issuer_lets_in(issuer: Issuer, gets_in: Callable[..., bool]) -> None:
    assert gets_in(issuer.token(), timeout=10)
    assert gets_in(issuer.token(aud=AUDIENCE), timeout=10)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["somebody else"]},
        {"aud": None},
        {"iss": "https://other.example"},
        {"exp": int(time.time()) - 60},
        {"nbf": int(time.time()) + 3600},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "\ud800"},
        {"scope": 7},
    ],
    ids=lambda claims: "-".join(f"{name}" for name in claims),
)
def test_a_token_that_says_something_else_does_not(
    issuer: Issuer, gets_in: Callable[..., bool], claims: dict[str, Any]
) -> None:
    assert not gets_in(issuer.token(**claims), timeout=0.5)


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_a_token_of_anybody_else_does_not(issuer: Issuer, gets_in: Callable[..., bool]) -> None:
    assert not gets_in(issuer.forged_token(), timeout=0.5)
    now = int(time.time())
    said = {"sub": "dora", "iss": ISSUER, "aud": [AUDIENCE], "iat": now, "exp": now + 60}
    assert not gets_in(f"{encoded({'alg': 'none'})}.{encoded(said)}.", timeout=0.5)
    # The public key as a shared secret: an old trick.
    signed = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{encoded(said)}"
    signature = hmac.digest(issuer.key.as_pem(private=False), signed.encode(), "sha256")
    assert not gets_in(f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}", timeout=0.5)
    assert not gets_in("not.a.token", timeout=0.5)


def test_a_key_that_is_new_is_fetched_when_it_is_first_met(
    issuer: Issuer, gets_in: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.security.sasl.jwks.REFETCH_SECONDS_MIN", 0.0)
    renewed = ECKey.generate_key("P-256", {"kid": "second"})
    assert not gets_in(issuer.token(renewed, "ES256"), timeout=0.5)
    issuer.publish(issuer.key, renewed)
    assert gets_in(issuer.token(renewed, "ES256"), timeout=10)


def test_tokens_without_a_signature_are_for_development_and_asked_for(files: Files) -> None:
    from ottla.config import ConfigError

    settings = {"listeners": f"SASL_PLAINTEXT://{LOCAL}:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="OAUTHBEARER needs sasl"):
        InProcessBroker(settings).start()
    line = f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    settings["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"] = line
    with InProcessBroker(settings) as broker:
        client = AdminClient(
            {
                "bootstrap.servers": f"{LOCAL}:{broker.port}",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=dora",
            }
        )
        assert client.list_topics(timeout=10).brokers
