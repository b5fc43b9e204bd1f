"""The setting that all converters have."""

from __future__ import annotations

from typing import Final

from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Type
from ottla.connect.settings.validators import one_of

CONVERTER_TYPE: Final = Setting(
    "converter.type",
    Type.STRING,
    REQUIRED,
    Importance.LOW,
    "What the converter is for; the worker sets it.",
    one_of("key", "value", "header"),
)
