"""Transforms of headers."""

from __future__ import annotations

from typing import Any, ClassVar

from ottla.connect.data import Struct
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugin import AnyRecord, Config, Transform
from ottla.connect.records import Header, changed
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import list_not_empty, not_null, one_of
from ottla.connect.text import from_text
from ottla.connect.transforms.part import REPLACE_NULL, PartTransform


class InsertHeader(Transform[AnyRecord]):
    settings: ClassVar[Settings] = Settings(
        Setting("header", Type.STRING, REQUIRED, Importance.HIGH, "The name of the header.", not_null),
        Setting(
            "value.literal",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "Its value; numbers, booleans, dates, lists and objects are taken as such.",
            not_null,
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._header = Header(self.config["header"], *from_text(self.config["value.literal"]))

    def apply(self, record: AnyRecord) -> AnyRecord:
        return changed(record, headers=(*record.headers, self._header))


class DropHeaders(Transform[AnyRecord]):
    settings: ClassVar[Settings] = Settings(
        Setting(
            "headers",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "The names of headers to take off.",
            list_not_empty,
        )
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        kept = tuple(header for header in record.headers if header.key not in self.config["headers"])
        return changed(record, headers=kept)


class HeaderFrom(PartTransform[AnyRecord]):
    purpose = "header"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "fields", Type.LIST, REQUIRED, Importance.HIGH, "Fields that become headers.", list_not_empty
        ),
        Setting(
            "headers",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "The names of the headers, in the same order.",
            list_not_empty,
        ),
        Setting(
            "operation",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "move takes the fields out, copy leaves them in.",
            one_of("move", "copy"),
        ),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._pairs = list(zip(self.config["fields"], self.config["headers"], strict=False))
        if len(self.config["fields"]) != len(self.config["headers"]):
            raise SettingError("'fields' config must have the same number of elements as 'headers' config.")
        self._moves = self.config["operation"] == "move"

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        moved = set(self.config["fields"]) if self._moves else set()
        if schema is None:
            plain = self.mapping(value)
            headers = [Header(name, None, plain.get(field)) for field, name in self._pairs]
            left: Any = {name: each for name, each in plain.items() if name not in moved}
            return self._with_headers(self.with_part(record, None, left), headers)
        struct = self.struct(value)
        headers = []
        for field, name in self._pairs:
            declared = schema.field(field)
            if declared is None:
                raise DataError(f"{field} is not a valid field name")
            headers.append(Header(name, declared.schema, self.field(struct, field)))
        updated = schema.but(fields=tuple(each for each in schema.fields if each.name not in moved))
        left = Struct(updated, {each.name: self.field(struct, each.name) for each in updated.fields})
        return self._with_headers(self.with_part(record, updated, left), headers)

    def _with_headers(self, record: AnyRecord, headers: list[Header]) -> AnyRecord:
        return changed(record, headers=(*record.headers, *headers))


class HeaderFromKey(HeaderFrom[AnyRecord]):
    part = "key"


class HeaderFromValue(HeaderFrom[AnyRecord]):
    part = "value"
