"""Java's `.properties` text, which is what `server.properties` files are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ottla.config.key import ConfigError

# Control characters other than tab, line feed, form feed, carriage return and the end mark of old editors.
_NO_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x19\x1b-\x1f\x7f]")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def decode_properties(data: bytes) -> str:
    """The text of a properties file, or ConfigError for what is none."""
    found = _NO_TEXT.search(data)
    if found is not None:
        at = found.start()
        line = data.count(b"\n", 0, at) + 1
        raise ConfigError(
            f"line {line}: byte {at} is 0x{data[at]:02x}, which no text has; this is not a properties file, "
            "or one that was saved as UTF-16 and has to be UTF-8"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # What Java reads properties as; files from editors of today are UTF-8.
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values as `java.util.Properties` reads them; a later key wins over an earlier one."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end = _key_end(line)
        rest = line[key_end:].lstrip(_BLANK)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANK)
        properties[_unescape(line[:key_end], number)] = _unescape(rest, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, those ending in a backslash joined with the next."""
    pending = ""
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _key_end(line: str) -> int:
    """Where the key stops: the first separator that no backslash protects."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped != "u":
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        position += 4
        try:
            parts.append(chr(int(digits, 16)))
        except ValueError:
            raise ConfigError(f"line {line}: \\u{digits} is not a \\uXXXX escape") from None
    return "".join(parts)
