"""Properties given to a tool: in files, as key=value, or both, where the latter win."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.framework.errors import ToolError


def read_properties(path: str) -> dict[str, str]:
    from ottla.config.key import ConfigError
    from ottla.config.properties import decode_properties, parse_properties

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    try:
        return parse_properties(decode_properties(data))
    except ConfigError as error:
        raise ToolError(f"{path}: {error}") from None


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments; a key without a value stands for an empty one, as with Apache Kafka."""
    values: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise ToolError(f"--{option} {text}: must be key=value")
        values[key.strip()] = value
    return values


def merged(option: str, path: str | None, given: Iterable[str] = ()) -> dict[str, str]:
    return {**(read_properties(path) if path else {}), **pairs(option, given)}
