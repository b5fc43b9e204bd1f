"""Lines of text as records: the console producer's default reader, with its properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.cli.framework.errors import ToolError

_SEPARATORS = ("key.separator", "headers.separator", "headers.delimiter", "headers.key.separator")

HeaderList = list[tuple[str, bytes | None]]


class LineRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: HeaderList


class LineReader:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parse_key = _flag(properties, "parse.key")
        self._parse_headers = _flag(properties, "parse.headers")
        self._ignore_error = _flag(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        self._null_marker = properties.get("null.marker")
        for first, second in (
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
        ):
            if self._property(first) == self._property(second):
                raise ToolError(f"{first} and {second} may not be equal")
        for name in _SEPARATORS:
            if self._property(name) == self._null_marker:
                raise ToolError(f"null.marker and {name} may not be equal")

    def records(self, lines: Iterable[str]) -> Iterator[LineRecord]:
        for number, line in enumerate(lines, 1):
            yield self._record(line.removesuffix("\n").removesuffix("\r"), number)

    def _record(self, line: str, number: int) -> LineRecord:
        headers, rest = self._cut(
            self._parse_headers, line, self._headers_delimiter, "headers delimiter", number
        )
        key, value = self._cut(self._parse_key, rest, self._key_separator, "key separator", number)
        pairs = [] if headers is None or headers == self._null_marker else self._headers(headers, number)
        return LineRecord(self._bytes(key), self._bytes(value), pairs)

    def _cut(self, wanted: bool, line: str, separator: str, name: str, number: int) -> tuple[str | None, str]:
        if not wanted:
            return None, line
        head, found, rest = line.partition(separator)
        if found:
            return head, rest
        if self._ignore_error:
            return None, line
        raise ToolError(f"No {name} found on line number {number}: '{line}'")

    def _headers(self, text: str, number: int) -> HeaderList:
        pairs: HeaderList = []
        for pair in text.split(self._headers_separator):
            name, found, value = pair.partition(self._header_key_separator)
            if not found and not self._ignore_error:
                raise ToolError(f"No header key separator found in pair '{pair}' on line number {number}")
            if name == self._null_marker:
                raise ToolError(
                    f"Header keys should not be equal to the null marker '{name}' as they can't be null"
                )
            pairs.append((name, self._bytes(value) if found else None))
        return pairs

    def _bytes(self, text: str | None) -> bytes | None:
        # What is not UTF-8 on standard input goes through as it is.
        return None if text is None or text == self._null_marker else text.encode("utf-8", "surrogateescape")

    def _property(self, name: str) -> str:
        return {
            "key.separator": self._key_separator,
            "headers.separator": self._headers_separator,
            "headers.delimiter": self._headers_delimiter,
            "headers.key.separator": self._header_key_separator,
        }[name]


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"
