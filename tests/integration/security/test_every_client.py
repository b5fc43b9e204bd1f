"""Every client by every way into a closed broker, and kept out where one thing is wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.maven import PeerUnavailable
from closed_broker import LOGIN, Closed, Files
from token_issuer import TOKEN_SECONDS, Issuer
from ways_in import Way, tried, ways_in, ways_out

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 20.0
NODE = Path(__file__).parent.parent / "node"


def by_librdkafka(way: Way) -> str:
    from confluent_kafka import KafkaException, Producer

    def fetch_token(_: Any) -> tuple[str, float]:
        return way.token, time.time() + TOKEN_SECONDS

    errors: list[Any] = []
    settings = librdkafka_settings(way) | {"error_cb": errors.append, "log_level": 0}
    client = Producer(settings | ({"oauth_cb": fetch_token} if way.token else {}))
    deadline = time.monotonic() + PATIENCE_S
    while not errors and time.monotonic() < deadline:
        client.poll(0)
        try:
            if client.list_topics(timeout=0.3).brokers:
                return ""
        except KafkaException:
            continue
    return str(errors)


def librdkafka_settings(way: Way) -> dict[str, Any]:
    settings = {"bootstrap.servers": way.server, "security.protocol": way.protocol.lower()}
    if way.uses_tls:
        settings["ssl.ca.location"] = way.authority
    if way.identity:
        settings |= {"ssl.certificate.location": way.identity, "ssl.key.location": way.identity}
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
    if way.password:
        settings |= {"sasl.username": way.username, "sasl.password": way.password}
    return settings


def by_kcat(way: Way) -> str:
    options = [f"{name}={value}" for name, value in librdkafka_settings(way).items()]
    command = [
        "kcat",
        "-b",
        way.server,
        "-L",
        "-m",
        "3",
        *(word for each in options for word in ("-X", each)),
    ]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return ran.stderr if ran.returncode else ""


def by_kafka_python(way: Way) -> str:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return way.token

    settings: dict[str, Any] = {"security_protocol": way.protocol}
    if way.uses_tls:
        settings["ssl_cafile"] = way.authority
    if way.identity:
        settings |= {"ssl_certfile": way.identity, "ssl_keyfile": way.identity}
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.password:
        settings |= {"sasl_plain_username": way.username, "sasl_plain_password": way.password}
    if way.token:
        settings["sasl_oauth_token_provider"] = Provider()
    try:
        client = KafkaAdminClient(
            bootstrap_servers=way.server, request_timeout_ms=15000, bootstrap_timeout_ms=3000, **settings
        )
    except KafkaError as error:
        return repr(error)
    try:
        client.list_topics()
    except KafkaError as error:
        return repr(error)
    finally:
        client.close()
    return ""


def by_aiokafka(way: Way) -> str:
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return way.token

    async def attempt() -> str:
        tls = None
        if way.uses_tls:
            shown = way.identity or None
            tls = create_ssl_context(cafile=way.authority, certfile=shown, keyfile=shown)
        client = AIOKafkaAdminClient(
            bootstrap_servers=way.server,
            security_protocol=way.protocol,
            ssl_context=tls,
            sasl_mechanism=way.mechanism or "PLAIN",
            sasl_plain_username=way.username or None,
            sasl_plain_password=way.password or None,
            sasl_oauth_token_provider=Provider() if way.token else None,
        )
        try:
            await client.start()
            await client.list_topics()
        except KafkaError as error:
            return repr(error)
        finally:
            await client.close()
        return ""

    return asyncio.run(attempt())


@pytest.mark.parametrize(
    "attempt", [by_librdkafka, by_kafka_python, by_aiokafka, by_kcat], ids=lambda each: each.__name__
)
def test_a_client(with_users: Closed, files: Files, issuer: Issuer, attempt: Callable[[Way], str]) -> None:
    right, wrong = ways_in(with_users, files, issuer), ways_out(with_users, files, issuer)
    if attempt is by_kcat:
        if shutil.which("kcat") is None:
            pytest.skip("needs kcat")
        # It has no way to be given a token.
        right, wrong = ({n: w for n, w in ways.items() if not w.token} for ways in (right, wrong))
    assert_kept_apart(tried(right, attempt), tried(wrong, attempt))


def assert_kept_apart(right: dict[str, str], wrong: dict[str, str]) -> None:
    assert not any(right.values()), {name: why for name, why in right.items() if why}
    let_in = [name for name, why in wrong.items() if not why]
    assert not let_in


@pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").is_dir(), reason="needs node and its packages"
)
def test_kafkajs(with_users: Closed, files: Files, issuer: Issuer) -> None:
    right, wrong = ways_in(with_users, files, issuer), ways_out(with_users, files, issuer)
    ways = {name: {"server": way.server, **asdict(way)} for name, way in (right | wrong).items()}
    outcomes = by_a_program(["node", str(NODE / "kafkajs_secured.js")], ways)
    assert_kept_apart({name: outcomes[name] for name in right}, {name: outcomes[name] for name in wrong})
    assert "SASLAuthenticationError" in outcomes["a wrong password (PLAIN)"]
    assert "does not match" in outcomes["a broker of another host name"]


def by_a_program(command: list[str], ways: dict[str, Any]) -> dict[str, str]:
    """One that reads all of them, and prints for each what kept it out."""
    ran = subprocess.run(
        command, input=json.dumps(ways), check=False, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr
    outcomes: dict[str, str] = json.loads(ran.stdout)
    assert list(outcomes) == list(ways)
    return outcomes


@pytest.mark.maven
@pytest.mark.slow
def test_java(with_users: Closed, files: Files, issuer: Issuer, tmp_path: Path) -> None:
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    if not Path(distribution.java).resolve().with_name("javac").exists():
        pytest.skip("javac is not installed")
    right, wrong = ways_in(with_users, files, issuer), ways_out(with_users, files, issuer)
    ways = {
        name: java_settings(way, tmp_path / str(at)) for at, (name, way) in enumerate((right | wrong).items())
    }
    tokens = [tmp_path / str(at) for at in range(len(ways))]
    program = [
        distribution.java,
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={distribution.home / 'tools.properties'}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(each.as_uri() for each in tokens)}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={','.join(map(str, tokens))}",
        *("-cp", f"{distribution.libs}/*", str(Path(__file__).parent / "java" / "Visits.java")),
    ]
    outcomes = by_a_program(program, ways)
    assert_kept_apart({name: outcomes[name] for name in right}, {name: outcomes[name] for name in wrong})
    for name in wrong:
        kind = "Sasl" if "token" in name or "user" in name or "password" in name else "Ssl"
        assert f"{kind}AuthenticationException" in outcomes[name], f"{name}: {outcomes[name]}"


def java_settings(way: Way, token_file: Path) -> dict[str, str]:
    settings = {
        "bootstrap.servers": way.server,
        "security.protocol": way.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": way.authority,
        "default.api.timeout.ms": "30000",
        "request.timeout.ms": "15000",
    }
    if way.identity:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": way.identity}
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
    if way.password:
        module = "plain.Plain" if way.mechanism == "PLAIN" else "scram.Scram"
        who = f'username="{way.username}" password="{way.password}"'
        settings["sasl.jaas.config"] = f"{LOGIN}.{module}LoginModule required {who};"
    if way.token:
        token_file.write_text(way.token)
        settings["sasl.jaas.config"] = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
        settings["sasl.login.callback.handler.class"] = f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
        settings["sasl.oauthbearer.token.endpoint.url"] = token_file.as_uri()
    return settings
