"""`ottla certs`: certificates for development, with the settings of brokers and clients that use them."""

from __future__ import annotations

import argparse
import os
import secrets
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Command, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.files.certificates import Authority

_LOGIN = "org.apache.kafka.common.security"
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_BROKER, _ADMIN = "broker", "admin"


def run(given: argparse.Namespace) -> int:
    from ottla.config.local_cluster import properties_text

    directory = os.path.abspath(given.dir)
    authority = _authority()
    hosts = list(dict.fromkeys((*_ALWAYS, *given.host)))
    passwords = {_BROKER: secrets.token_urlsafe(18), _ADMIN: secrets.token_urlsafe(18)}
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{directory}/ca.pem",
    }
    contents = {
        "ca.pem": authority.certificate,
        "broker.pem": authority.issue(_BROKER, hosts, given.days).identity,
        "client.pem": authority.issue(given.user, (), given.days).identity,
        "server.properties": properties_text(
            _server_properties(directory, passwords),
            "For `ottla start --brokers 3`. Clients come in through SASL_SSL; nodes know each other by "
            "password and certificate.",
        ).encode(),
        "admin.properties": properties_text(
            client | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": _plain(_ADMIN, passwords[_ADMIN])},
            "For --command-config: may do everything.",
        ).encode(),
        "client.properties": properties_text(
            client
            | {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required "
                f'username="{given.user}" password="{given.password}";',
            },
            "For clients, and --command-config; the user has to be added with kafka-configs first.",
        ).encode(),
    }
    os.makedirs(directory, exist_ok=True)
    present = [name for name in contents if os.path.exists(f"{directory}/{name}")]
    if present and not given.force:
        raise ToolError(f"{directory}: has {', '.join(present)} already; say --force to replace them")
    for name, content in contents.items():
        _write(f"{directory}/{name}", content)
    lines = [f"{directory}/{name}" for name in contents]
    show(given, {"directory": directory, "files": list(contents), "hosts": hosts}, lines)
    return 0


def _authority() -> Authority:
    try:
        from ottla.cli.files.certificates import Authority
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("cryptography"):
            raise
        raise ToolError("needs the package cryptography: pip install 'ottla[security]'") from None
    return Authority()


def _server_properties(directory: str, passwords: dict[str, str]) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return {
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": _plain(_BROKER, passwords[_BROKER], users),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{directory}/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{directory}/ca.pem",
        # Nobody but brokers has business with controllers.
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
    }


def _plain(name: str, password: str, others: str = "") -> str:
    line = f'{_LOGIN}.plain.PlainLoginModule required username="{name}" password="{password}"'
    return f"{line} {others};" if others else f"{line};"


def _write(path: str, content: bytes) -> None:
    """Keys and passwords are nobody else's business."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        # One that is replaced may have been open to others.
        os.fchmod(descriptor, 0o600)
        file.write(content)


TOOL = Tool(
    name="certs",
    description="Make certificates for development, and settings to go with them.",
    run=run,
    options=(),
    commands=(
        Command(
            "create",
            "a certificate authority, certificates of a broker and a client, and properties files",
            (
                Option("dir", "where to write them", "DIR", required=True),
                Option("host", "a host that brokers run on, besides this one", "HOST", repeats=True),
                Option("user", "the client's name", "NAME", default="alice"),
                Option("password", "the client's password", "PASSWORD", default="wonderland"),
                Option("days", "how long the certificates are valid", "DAYS", parse=int, default=365),
                Option("force", "replace files that are there already"),
            ),
        ),
    ),
    examples=("create --dir closed", "create --dir closed --host kafka.example.org --host 10.0.0.7"),
)
