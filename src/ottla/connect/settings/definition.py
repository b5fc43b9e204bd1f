"""One setting and a set of them: how text becomes a value, what is wrong with it, how REST describes it.

Types, defaults and the words of refusals are those of Kafka's `ConfigDef`, since tools and people match on
them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ottla.connect.errors import SettingError


class Type(enum.Enum):
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - a type


class Importance(enum.Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required(enum.Enum):
    """Told apart from None, which is a default like any other."""

    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED
HIDDEN: Final = "[hidden]"
_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")

Validator = Callable[[str, Any], None]
"""Takes the setting's name and its value, None included, and raises SettingError."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: Type
    default: Any
    """REQUIRED for a setting that has to be given."""
    importance: Importance
    doc: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display: str = ""
    recommended: tuple[str, ...] = ()
    known: Callable[[str], bool] | None = None
    """For CLASS: whether there is a plugin of that name."""

    def parse(self, given: Any) -> Any:
        """The value of what stands in a file or a request. Raises SettingError."""
        if given is None:
            return None
        text = str(given).strip()
        match self.type:
            case Type.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise SettingError.of(self.name, given, "Expected value to be either true or false")
                return text.lower() == "true"
            case Type.INT | Type.SHORT | Type.LONG:
                bits = _BITS[self.type]
                if _INTEGER.fullmatch(text) is None or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
                    raise SettingError.of(self.name, given, f"Not a number of type {self.type.value}")
                return int(text)
            case Type.DOUBLE:
                try:
                    return float(text)
                except ValueError:
                    raise SettingError.of(self.name, given, "Not a number of type DOUBLE") from None
            case Type.LIST:
                return [part.strip() for part in text.split(",")] if text else []
            case Type.CLASS:
                if self.known is not None and not self.known(text):
                    raise SettingError.of(self.name, given, f"Class {text} could not be found.")
                return text
            case Type.STRING | Type.PASSWORD:
                return text

    def written(self, value: Any) -> str | None:
        """As text again, as REST shows it."""
        if value is None:
            return None
        match self.type:
            case Type.BOOLEAN:
                return "true" if value else "false"
            case Type.LIST:
                return ",".join(value)
            case Type.PASSWORD:
                return HIDDEN
            case _:
                return str(value)

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type.value,
            "required": self.default is REQUIRED,
            "default_value": None if self.default is REQUIRED else self.written(self.default),
            "importance": self.importance.value,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display or self.name,
            "dependents": [],
        }


@dataclass(slots=True)
class Checked:
    """A setting with what was given for it; all that is wrong with it is kept, not only the first."""

    setting: Setting
    value: Any = None
    errors: list[str] = field(default_factory=list)

    def described(self) -> dict[str, Any]:
        setting = self.setting
        return {
            "definition": setting.described(),
            "value": {
                "name": setting.name,
                "value": setting.written(self.value),
                "recommended_values": list(setting.recommended),
                "errors": list(self.errors),
                "visible": True,
            },
        }


class Settings:
    """An ordered set of settings; immutable."""

    def __init__(self, *settings: Setting) -> None:
        self._by_name = {setting.name: setting for setting in settings}

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Setting:
        return self._by_name[name]

    def __add__(self, other: Iterable[Setting]) -> Settings:
        """Later ones take the place of earlier ones of the same name."""
        return Settings(*self, *other)

    def prefixed(self, prefix: str, group: str | None = None, first: int = 0) -> Settings:
        """For a plugin inside a connector: `transforms.route.` + regex. Validators see the short name."""
        return Settings(
            *(
                replace(
                    setting,
                    name=prefix + setting.name,
                    display=setting.display or setting.name,
                    group=setting.group if group is None else group,
                    order=setting.order if group is None else first + place,
                    validator=_under(setting.name, setting.validator),
                )
                for place, setting in enumerate(self)
            )
        )

    def check(self, given: Mapping[str, Any]) -> dict[str, Checked]:
        """All settings with their values, wrong ones with the reasons."""
        return {setting.name: _checked(setting, given) for setting in self}

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All values. Raises SettingError for the first that cannot be used."""
        values: dict[str, Any] = {}
        for name, checked in self.check(given).items():
            if checked.errors:
                raise SettingError(checked.errors[0])
            values[name] = checked.value
        return values


def _checked(setting: Setting, given: Mapping[str, Any]) -> Checked:
    checked = Checked(setting)
    if setting.name in given:
        try:
            checked.value = setting.parse(given[setting.name])
        except SettingError as error:
            checked.errors.append(str(error))
    elif setting.default is REQUIRED:
        checked.errors.append(f'Missing required configuration "{setting.name}" which has no default value.')
    else:
        checked.value = setting.default
    if setting.validator is not None:
        try:
            setting.validator(setting.name, checked.value)
        except SettingError as error:
            checked.errors.append(str(error))
    return checked


def _under(name: str, validator: Validator | None) -> Validator | None:
    if validator is None:
        return None

    def validate(_: str, value: Any) -> None:
        validator(name, value)

    return validate
