"""What a value has to be, besides of its type. Named and worded after Kafka's `ConfigDef`."""

from __future__ import annotations

import re
from typing import Any, Final

from ottla.connect.errors import SettingError
from ottla.connect.settings.definition import Validator

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def at_least(minimum: int, maximum: int | None = None) -> Validator:
    def validate(name: str, value: Any) -> None:
        if value is None:
            raise SettingError.of(name, None, "Value must be non-null")
        if value < minimum:
            raise SettingError.of(name, value, f"Value must be at least {minimum}")
        if maximum is not None and value > maximum:
            raise SettingError.of(name, value, f"Value must be no more than {maximum}")

    return validate


def one_of(*choices: str, any_case: bool = False) -> Validator:
    def validate(name: str, value: Any) -> None:
        folded = value.upper() if any_case and value is not None else value
        if folded not in choices:
            kind = "String must be one of (case insensitive): " if any_case else "String must be one of: "
            raise SettingError.of(name, value, kind + ", ".join(choices))

    return validate


def not_empty(name: str, value: Any) -> None:
    if value == "":
        raise SettingError.of(name, value, "String must be non-empty")


def not_null(name: str, value: Any) -> None:
    if value is None:
        raise SettingError.of(name, value, "entry must be non null")


def topic_name(name: str, value: Any) -> None:
    """One that a broker would take."""
    not_empty(name, value)
    if value is not None and (value in {".", ".."} or _TOPIC.fullmatch(value) is None):
        reason = (
            "A topic's name has up to 249 letters, digits, dots, dashes and underscores, and is not . or .."
        )
        raise SettingError.of(name, value, reason)


def list_not_empty(name: str, value: Any) -> None:
    if not value:
        raise SettingError.of(name, value, "Empty list")


def connector_name(name: str, value: Any) -> None:
    if value is None:
        return
    if value == "":
        raise SettingError.of(name, value, "String may not be empty")
    control = [character for character in value if ord(character) < 32 or 127 <= ord(character) < 160]
    if control:
        codes = ", ".join(str(ord(character)) for character in control)
        reason = f"String may not contain control sequences but had the following ASCII chars: {codes}"
        raise SettingError.of(name, value, reason)


def regular_expression(name: str, value: Any) -> None:
    if value is None:
        return
    try:
        re.compile(value)
    except re.error as error:
        raise SettingError.of(name, value, f"Invalid regex: {error}") from None


def all_of(*validators: Validator) -> Validator:
    def validate(name: str, value: Any) -> None:
        for validator in validators:
            validator(name, value)

    return validate
