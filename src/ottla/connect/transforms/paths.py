"""Names of fields: plain (V1), or with dots that lead into nested ones and backticks around names
with dots (V2)."""

from __future__ import annotations

from typing import Any, Final

from ottla.connect.data import Field, Schema, Struct
from ottla.connect.errors import SettingError
from ottla.connect.settings.definition import Importance, Setting, Type
from ottla.connect.settings.validators import one_of

SYNTAX: Final = Setting(
    "field.syntax.version",
    Type.STRING,
    "V1",
    Importance.HIGH,
    "V2 lets dots lead into nested fields; with V1 a dot is part of the name.",
    one_of("V1", "V2", any_case=True),
)


class FieldPath:
    def __init__(self, text: str, syntax: str) -> None:
        self.text = text
        self.steps = _split(text) if syntax.upper() == "V2" else [text]

    def declared_in(self, schema: Schema) -> Field | None:
        for step in self.steps[:-1]:
            found = schema.field(step)
            if found is None:
                return None
            schema = found.schema
        return schema.field(self.steps[-1])

    def value_in(self, value: Any, *, default: bool = True) -> Any:
        for step in self.steps:
            if value is None:
                return None
            if isinstance(value, Struct):
                is_known = value.schema.field(step) is not None
                value = value.get(step, default=default) if is_known else None
            else:
                value = value.get(step)
        return value


def _split(path: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] != "`":
            end = path.find(".", at)
            steps.append(path[at:] if end < 0 else path[at:end])
            at = len(path) if end < 0 else end + 1
            continue
        name, at = _quoted(path, at)
        steps.append(name)
    if path.endswith(".") or not path:
        steps.append("")
    return steps


def _quoted(path: str, opening: int) -> tuple[str, int]:
    """The name between backticks, and where the next step begins."""
    name = ""
    start = at = opening + 1
    while True:
        at = path.find("`", at)
        is_escaped = at > 0 and path[at - 1] == "\\"
        is_last = at == len(path) - 1
        if at < 0 or (is_last and is_escaped):
            raise SettingError(
                f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at "
                f"position {opening} to escape it"
            )
        if is_last:
            return name + path[start:at], len(path)
        if path[at + 1] != ".":
            at += 1
        elif is_escaped:
            name += path[start : at - 1] + "`"
            start = at = at + 1
        else:
            return name + path[start:at], at + 2
