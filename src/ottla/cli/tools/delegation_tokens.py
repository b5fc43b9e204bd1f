"""`kafka-delegation-tokens`: what a user gives to others, so that they can log in as it for a while."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.tokens import Principal, Token

_ACTIONS = ("create", "renew", "expire", "describe")
# What each cannot go without, and what makes no sense with it.
_REQUIRED = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
_INVALID = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
_LINE = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEADS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    chosen = [action for action in _ACTIONS if getattr(given, action)]
    if len(chosen) != 1:
        raise ToolError("Command must include exactly one action: --create, --renew, --expire or --describe")
    [action] = chosen
    for name in _REQUIRED[action]:
        if getattr(given, name) is None:
            raise ToolError(f'Missing required argument "[{name.replace("_", "-")}]"')
    for name in _INVALID[action]:
        if getattr(given, name) not in (None, []):
            raise ToolError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    with cluster(given) as admin:
        {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action](given, admin)
    return 0


def _create(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.tokens import create_token

    renewers = [_principal(text) for text in given.renewer_principal]
    owner = _principal(given.owner_principal[0]) if given.owner_principal else None
    made = _shown(admin.call(create_token, owner, renewers, given.max_life_time_period))
    named = ", ".join(map(str, renewers))
    lines = [
        f"Calling create token operation with renewers :[{named}] , max-life-time-period "
        f":{given.max_life_time_period}",
        f"Created delegation token with tokenId : {made['tokenId']}",
    ]
    show(given, _as_json(made), lines + _table([made]))


def _renew(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.tokens import renew_token

    expires = _date(admin.call(renew_token, _hmac(given), given.renew_time_period))
    lines = [
        f"Calling renew token operation with hmac :{given.hmac} , renew-time-period "
        f":{given.renew_time_period}",
        f"Completed renew operation. New expiry date : {expires}",
    ]
    show(given, {"expires": expires}, lines)


def _expire(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.tokens import expire_token

    expires = _date(admin.call(expire_token, _hmac(given), given.expiry_time_period))
    lines = [
        f"Calling expire token operation with hmac :{given.hmac} , expire-time-period "
        f":{given.expiry_time_period}",
        f"Completed expire operation. New expiry date : {expires}",
    ]
    show(given, {"expires": expires}, lines)


def _describe(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.tokens import describe_tokens

    owners = [_principal(text) for text in given.owner_principal]
    tokens = [_shown(token) for token in admin.call(describe_tokens, owners)]
    named = ", ".join(map(str, owners))
    asking = f"for owners: [{named}]" if owners else "for current user."
    lines = [f"Calling describe token operation {asking}", f"Total number of tokens : {len(tokens)}"]
    show(given, [_as_json(token) for token in tokens], lines + _table(tokens))


def _shown(token: Token) -> dict[str, Any]:
    return {
        "tokenId": token.id,
        "hmac": base64.b64encode(token.hmac).decode(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issued": token.issued,
        "expires": token.expires,
        "ends": token.ends,
    }


def _table(tokens: Iterable[dict[str, Any]]) -> list[str]:
    lines = ["", _LINE.format(*_HEADS)]
    for token in tokens:
        cells = (
            token["tokenId"],
            token["hmac"],
            token["owner"],
            token["requester"],
            f"[{','.join(token['renewers'])}]",
            *(_date(token[name]) for name in ("issued", "expires", "ends")),
        )
        lines += ["", _LINE.format(*cells)]
    return lines


def _as_json(token: dict[str, Any]) -> dict[str, Any]:
    return {name: _date(value) if isinstance(value, datetime) else value for name, value in token.items()}


def _principal(text: str) -> Principal:
    from ottla.client.admin.tokens import Principal

    kind, separator, name = text.strip().partition(":")
    if not separator:
        raise ToolError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)


def _hmac(given: argparse.Namespace) -> bytes:
    try:
        return base64.b64decode(given.hmac, validate=True)
    except binascii.Error:
        raise ToolError(f"--hmac {given.hmac}: is not base64") from None


def _date(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M")


TOOL = Tool(
    name="delegation-tokens",
    description="Create, renew, expire, or describe delegation tokens.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("command-config", "a properties file with settings of the client", "FILE", required=True),
        Option("create", "create a delegation token"),
        Option("renew", "renew a delegation token"),
        Option("expire", "let a delegation token expire"),
        Option("describe", "list delegation tokens"),
        Option("owner-principal", "whose tokens, as User:name", "PRINCIPAL", repeats=True),
        Option("renewer-principal", "who may renew it, as User:name", "PRINCIPAL", repeats=True),
        Option("max-life-time-period", "longest life in ms; -1 for as long as is allowed", "MS", parse=int),
        Option("renew-time-period", "renew for so many ms; -1 for as long as is allowed", "MS", parse=int),
        Option("expiry-time-period", "expire in so many ms; -1 for at once", "MS", parse=int),
        Option("hmac", "the token's HMAC", "HMAC"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --command-config client.properties --create "
        "--max-life-time-period -1 --renewer-principal User:alice",
    ),
)
