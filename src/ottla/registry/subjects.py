"""Names of subjects: `:.context:subject`, where a name without the first part is of the default context."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"


class Subject(NamedTuple):
    context: str
    name: str

    @property
    def prefix(self) -> str:
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def __str__(self) -> str:
        return self.prefix + self.name


def parse_subject(text: str) -> Subject:
    if not text.startswith(":."):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def normalize(text: str) -> str:
    """The same name however it was written: the default context is left out."""
    return str(parse_subject(text))


def in_context(context: str, text: str) -> str:
    """A name from an address below `/contexts/{context}`; one that names a context itself keeps it."""
    return text if text.startswith(":.") else str(Subject(context, text))


def is_valid(text: str) -> bool:
    name = parse_subject(text).name
    return bool(name) and name not in {"__GLOBAL", "__EMPTY"} and all(ord(each) >= 32 for each in text)
