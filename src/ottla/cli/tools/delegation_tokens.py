"""`kafka-delegation-tokens`: what a user gives to others, so that they can log in as it for a while."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ottla.cli.framework.errors import ToolError, check
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, Option, Tool

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


def _create(given: argparse.Namespace, admin: Any) -> None:
    from ottla.wire.api import ApiKey

    renewers = [_principal(text) for text in given.renewer_principal]
    owner = _principal(given.owner_principal[0]) if given.owner_principal else (None, None)
    answer = admin.ask(
        ApiKey.CREATE_DELEGATION_TOKEN,
        {
            "owner_principal_type": owner[0],
            "owner_principal_name": owner[1],
            "renewers": [{"principal_type": kind, "principal_name": name} for kind, name in renewers],
            "max_lifetime": given.max_life_time_period,
        },
    )
    check(answer.error_code, None)
    named = ", ".join(":".join(renewer) for renewer in renewers)
    made = {
        "tokenId": answer.token_id,
        "hmac": base64.b64encode(answer.hmac).decode(),
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "requester": f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        "renewers": [":".join(renewer) for renewer in renewers],
        "issued": answer.issue_timestamp,
        "expires": answer.expiry_timestamp,
        "ends": answer.max_timestamp,
    }
    lines = [
        f"Calling create token operation with renewers :[{named}] , max-life-time-period "
        f":{given.max_life_time_period}",
        f"Created delegation token with tokenId : {answer.token_id}",
    ]
    show(given, _as_json(made), lines + _table([made]))


def _renew(given: argparse.Namespace, admin: Any) -> None:
    from ottla.wire.api import ApiKey

    values = {"hmac": _hmac(given), "renew_period": given.renew_time_period}
    answer = admin.ask(ApiKey.RENEW_DELEGATION_TOKEN, values)
    check(answer.error_code, None)
    lines = [
        f"Calling renew token operation with hmac :{given.hmac} , renew-time-period "
        f":{given.renew_time_period}",
        f"Completed renew operation. New expiry date : {_date(answer.expiry_timestamp)}",
    ]
    show(given, {"expires": _date(answer.expiry_timestamp)}, lines)


def _expire(given: argparse.Namespace, admin: Any) -> None:
    from ottla.wire.api import ApiKey

    values = {"hmac": _hmac(given), "expiry_time_period": given.expiry_time_period}
    answer = admin.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, values)
    check(answer.error_code, None)
    lines = [
        f"Calling expire token operation with hmac :{given.hmac} , expire-time-period "
        f":{given.expiry_time_period}",
        f"Completed expire operation. New expiry date : {_date(answer.expiry_timestamp)}",
    ]
    show(given, {"expires": _date(answer.expiry_timestamp)}, lines)


def _describe(given: argparse.Namespace, admin: Any) -> None:
    from ottla.wire.api import ApiKey

    owners = [_principal(text) for text in given.owner_principal]
    asked = [{"principal_type": kind, "principal_name": name} for kind, name in owners] or None
    answer = admin.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": asked})
    check(answer.error_code, None)
    tokens = [
        {
            "tokenId": token.token_id,
            "hmac": base64.b64encode(token.hmac).decode(),
            "owner": f"{token.principal_type}:{token.principal_name}",
            "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
            "issued": datetime.fromtimestamp(token.issue_timestamp / 1000),
            "expires": datetime.fromtimestamp(token.expiry_timestamp / 1000),
            "ends": datetime.fromtimestamp(token.max_timestamp / 1000),
        }
        for token in answer.tokens
    ]
    named = ", ".join(":".join(owner) for owner in owners)
    asking = f"for owners: [{named}]" if owners else "for current user."
    lines = [f"Calling describe token operation {asking}", f"Total number of tokens : {len(tokens)}"]
    show(given, [_as_json(token) for token in tokens], lines + _table(tokens))


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


def _principal(text: str) -> tuple[str, str]:
    kind, separator, name = text.strip().partition(":")
    if not separator:
        raise ToolError(f"expected a string in format principalType:principalName but got {text}")
    return kind, name


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
