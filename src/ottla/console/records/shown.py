"""Bytes as a person reads them, by a decoder that is chosen or guessed."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from ottla.console.schemas import Decoded, Schemas
from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.record_json import group_record, share_record, transaction_record

Decoder: TypeAlias = Literal["auto", "schema", "string", "json", "int32", "int64", "float64", "hex", "base64"]


class Shown(NamedTuple):
    as_: str
    """Which decoder it was."""
    text: str | None
    """None for what is not there at all."""
    json: Any = None
    """The same as data, where it is JSON."""


NOTHING = Shown("null", None)

_NUMBERS: dict[str, struct.Struct] = {
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}


def show(data: bytes | None, decoder: Decoder = "auto", schemas: Schemas | None = None) -> Shown:
    """What the chosen decoder cannot read is shown as it can be."""
    if data is None:
        return NOTHING
    match decoder:
        case "auto" | "schema":
            found = schemas.decode(data) if schemas is not None else None
            if isinstance(found, Decoded):
                try:
                    return Shown(found.kind, _written(found.data, _plain), found.data)
                except RecursionError:
                    found = f"{found.kind}, nested too deep"
            guessed = _guess(data)
            # Who asked for it is told why there is none; whoever did not sees what else it may be.
            return guessed if decoder == "auto" else Shown(found or "no schema", guessed.text)
        case "string":
            return Shown("string", data.decode(errors="replace"))
        case "json":
            return _json(data) or _guess(data)
        case "hex":
            return Shown("hex", data.hex(" "))
        case "base64":
            return Shown("base64", base64.b64encode(data).decode())
        case _:
            layout = _NUMBERS[decoder]
            if len(data) != layout.size:
                return _guess(data)
            number = layout.unpack(data)[0]
            return Shown(decoder, str(number), number)


def _written(data: Any, default: Callable[[Any], str]) -> str:
    text = json.dumps(data, ensure_ascii=False, default=default)
    # Half of a pair of surrogates is no text: it is written as JSON names it.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def show_name(name: str) -> str:
    """Of a header: clients may have made it of bytes that are no text."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode(errors="replace")


def _plain(value: Any) -> str:
    """Of Avro's values those that JSON has no word for: bytes, decimals, times."""
    return value.hex(" ") if isinstance(value, bytes) else str(value)


def _guess(data: bytes) -> Shown:
    if data[:1] in (b"{", b"[") and (found := _json(data)) is not None:
        return found
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and (text.isprintable() or all(_is_readable(each) for each in text)):
        return Shown("string", text)
    for name in ("int64", "int32"):
        if len(data) == _NUMBERS[name].size:
            return show(data, name)
    return Shown("hex", data.hex(" "))


def _is_readable(character: str) -> bool:
    return character.isprintable() or character in "\n\r\t"


def _json(data: bytes) -> Shown | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    # As it was written: to write it anew might say less, of large numbers or names that come twice.
    return Shown("json", data.decode(errors="replace"), found)


Pair: TypeAlias = "Callable[[bytes | None, bytes | None], tuple[Shown, Shown]]"
_OWN = {
    "__consumer_offsets": group_record,
    "__transaction_state": transaction_record,
    "__share_group_state": share_record,
}


def decoder_of(topic: str, key: Decoder, value: Decoder, schemas: Schemas | None) -> Pair:
    """For key and value of one record; topics of the cluster's own have formats of their own."""
    decode = _OWN.get(topic)

    def plainly(key_data: bytes | None, value_data: bytes | None) -> tuple[Shown, Shown]:
        return show(key_data, key, schemas), show(value_data, value, schemas)

    if decode is None or (key, value) != ("auto", "auto"):
        return plainly

    def as_the_cluster_does(key_data: bytes | None, value_data: bytes | None) -> tuple[Shown, Shown]:
        if key_data is None:
            return plainly(key_data, value_data)
        try:
            found_key, found_value = decode(key_data, value_data)
        except UnknownRecord:
            return plainly(key_data, value_data)
        return _structure(topic, found_key), (
            NOTHING if found_value is None else _structure(topic, found_value)
        )

    return as_the_cluster_does


def _structure(topic: str, data: dict[str, Any]) -> Shown:
    return Shown(topic, _written(data, str), data)
