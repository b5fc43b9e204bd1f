"""Header values as text, read back as what they look like; the default of Kafka Connect."""

from __future__ import annotations

from ottla.connect.data import BYTES
from ottla.connect.plugin import HeaderConverter
from ottla.connect.records import Header
from ottla.connect.text import from_text, to_text


class SimpleHeaderConverter(HeaderConverter):
    def header_to_bytes(self, topic: str, header: Header) -> bytes | None:
        return None if header.value is None else to_text(header.value).encode()

    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> Header:
        if data is None:
            return Header(key, None, None)
        try:
            return Header(key, *from_text(data.decode()))
        except UnicodeDecodeError:
            return Header(key, BYTES, data)
