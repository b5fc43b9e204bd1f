"""The keys of who signs tokens, at an address: whom it is believed from, and when it does not answer."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from closed_broker import LOGIN, Files
from token_issuer import Issuer

from ottla.client.peer import AuthenticationFailed, Peer
from ottla.client.security import security_from_properties
from ottla.config import ConfigError
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.testing.in_process import InProcessBroker


class KeyServer:
    """Shows the issuer's keys through TLS, while `serving`."""

    def __init__(self, issuer: Issuer, identity: str) -> None:
        self._issuer = issuer
        self._identity = identity
        (self.port,) = free_ports("127.0.0.1", 1)
        self.asked = 0
        self.sends_to = ""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/keys"

    @contextmanager
    def serving(self) -> Iterator[None]:
        shown = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shown.asked += 1
                content = shown._issuer.path.read_bytes()
                self.send_response(302 if shown.sends_to else 200)
                if shown.sends_to:
                    self.send_header("Location", shown.sends_to)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._identity)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def settings(issuer: Issuer, url: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **issuer.settings,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "200",
        "connection.failed.authentication.delay.ms": "0",
        **more,
    }


def gets_in(broker: InProcessBroker, token: str) -> bool:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": token,
    }

    async def attempt() -> bool:
        try:
            peer = await Peer.connect(
                AsyncioNetwork(),
                broker.host,
                broker.port,
                client_id="test",
                software_version="1",
                security=security_from_properties(properties),
            )
        except AuthenticationFailed:
            return False
        peer.close()
        return True

    return asyncio.run(attempt())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_keys_come_through_tls_in_the_background_and_never_for_a_login(
    issuer: Issuer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyServer(issuer, files.server)
    trusting = settings(issuer, keys.url, **{"ssl.truststore.location": files.authority})
    with InProcessBroker(trusting) as broker:
        # It is up though nobody answers there, and says what that means.
        assert not gets_in(broker, issuer.token())
        assert f"cannot be had from {keys.url}" in caplog.text
        assert "nobody gets in with a token until they can" in caplog.text
        with keys.serving():
            wait_until(lambda: keys.asked > 0)
            wait_until(lambda: gets_in(broker, issuer.token()))
            for _ in range(5):
                assert gets_in(broker, issuer.token())
            assert not gets_in(broker, issuer.forged_token())
            assert keys.asked == 1
        # Nor does it matter to logins that nobody answers any more.
        assert gets_in(broker, issuer.token())


def test_keys_that_cannot_be_fetched_again_count_on(
    issuer: Issuer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyServer(issuer, files.server)
    line = f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required ssl.truststore.location="{files.authority}";'
    often = {
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "50",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": line,
    }
    with keys.serving():
        broker = InProcessBroker(settings(issuer, keys.url, **often)).start()
    try:
        wait_until(lambda: "those that were had before count on" in caplog.text)
        assert gets_in(broker, issuer.token())
        before = keys.asked
        with keys.serving():
            wait_until(lambda: keys.asked > before + 1)
            assert gets_in(broker, issuer.token())
    finally:
        broker.close()


@pytest.mark.parametrize("identity", ["server", "elsewhere"])
def test_keys_of_somebody_else_are_not_taken(
    issuer: Issuer, files: Files, identity: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a host with another name; of one whose authority nobody named."""
    keys = KeyServer(issuer, getattr(files, identity))
    trust = files.authority if identity == "elsewhere" else files.other_authority
    with (
        keys.serving(),
        InProcessBroker(settings(issuer, keys.url, **{"ssl.truststore.location": trust})) as broker,
    ):
        wait_until(lambda: "certificate verify failed" in caplog.text)
        assert not gets_in(broker, issuer.token())
    assert keys.asked == 0


def test_an_address_that_sends_on_to_an_open_one_is_not_followed(
    issuer: Issuer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyServer(issuer, files.server)
    keys.sends_to = f"http://localhost:{keys.port}/keys"
    trusting = settings(issuer, keys.url, **{"ssl.truststore.location": files.authority})
    with keys.serving(), InProcessBroker(trusting):
        wait_until(lambda: "which is not https" in caplog.text)


def test_what_can_never_be_fetched_is_said_at_the_start(issuer: Issuer) -> None:
    with pytest.raises(ConfigError, match=r"must be https"):
        InProcessBroker(settings(issuer, "ftp://localhost/keys")).start()
    missing = {"ssl.truststore.location": "/not/there.pem"}
    with pytest.raises(ConfigError, match=r"/not/there\.pem"):
        InProcessBroker(settings(issuer, "https://localhost/keys", **missing)).start()
