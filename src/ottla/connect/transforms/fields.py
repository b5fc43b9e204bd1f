"""Transforms that add, take out, rename, mask, nest and flatten fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect.columns import Fields, SourceColumns
from ottla.connect.data import (
    EPOCH,
    EPOCH_DAY,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Field,
    Kind,
    Schema,
    Struct,
    from_millis,
    struct_of,
)
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugin import AnyRecord, Config, Transform
from ottla.connect.records import SinkRecord, changed
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import list_not_empty, not_empty
from ottla.connect.transforms.part import REPLACE_NULL, PartTransform
from ottla.connect.transforms.paths import SYNTAX, FieldPath


class _Inserted(NamedTuple):
    name: str
    is_optional: bool


def _inserted(text: str | None) -> _Inserted | None:
    if text is None:
        return None
    return _Inserted(text.rstrip("?!") if text[-1:] in {"?", "!"} else text, not text.endswith("!"))


class InsertField(PartTransform[AnyRecord]):
    purpose = "field insertion"
    settings: ClassVar[Settings] = Settings(
        *(
            Setting(
                f"{name}.field",
                Type.STRING,
                None,
                Importance.MEDIUM,
                f"The field that gets {doc}. A ! behind it makes it required, a ? or nothing optional.",
            )
            for name, doc in (
                ("topic", "the topic's name"),
                ("partition", "the number of the partition"),
                ("offset", "the offset; for sinks"),
                ("timestamp", "the record's timestamp"),
                ("static", "`static.value`"),
            )
        ),
        Setting("static.value", Type.STRING, None, Importance.MEDIUM, "The text for `static.field`."),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        names = ("topic", "partition", "offset", "timestamp", "static")
        parsed = {name: _inserted(self.config[f"{name}.field"]) for name in names}
        self.inserted = {name: field for name, field in parsed.items() if field is not None}
        if not self.inserted:
            raise SettingError("No field insertion configured")
        if "static" in self.inserted and self.config["static.value"] is None:
            field = self.inserted["static"].name
            raise SettingError.of("static.value", None, f"No value specified for static field: {field}")

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        found = self._found(record)
        if schema is None:
            plain = {self.inserted[name].name: each for name, each in found.items() if each is not None}
            return self.with_part(record, None, self.mapping(value) | plain)
        struct = self.struct(value)
        if (stamp := found.get("timestamp")) is not None:
            found["timestamp"] = from_millis(stamp)
        kinds = {"partition": INT32, "offset": INT64, "timestamp": TIMESTAMP_SCHEMA}
        added = [
            Field(field.name, kinds.get(name, STRING).but(optional=field.is_optional))
            for name, field in self.inserted.items()
        ]
        updated = schema.but(fields=(*schema.fields, *added))
        values = {self.inserted[name].name: each for name, each in found.items()}
        return self.with_part(record, updated, Struct(updated, self.fields(struct) | values))

    def _found(self, record: AnyRecord) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.inserted:
            if name == "offset":
                if not isinstance(record, SinkRecord):
                    raise DataError(
                        f"Only SinkRecord supported for [{self.purpose}]: a source has no offset yet"
                    )
                found[name] = record.offset
            else:
                known = {
                    "topic": record.topic,
                    "partition": record.partition,
                    "timestamp": record.timestamp_ms,
                    "static": self.config["static.value"],
                }
                found[name] = known[name]
        return found


class ExtractField(PartTransform[AnyRecord]):
    purpose = "field extraction"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "field", Type.STRING, REQUIRED, Importance.MEDIUM, "The field that takes the place of the whole."
        ),
        REPLACE_NULL,
        SYNTAX,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self.path = FieldPath(self.config["field"], self.config[SYNTAX.name])

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            found = None if value is None else self.path.value_in(self.mapping(value))
            return self.with_part(record, None, found)
        field = self.path.declared_in(schema)
        if field is None:
            raise DataError(f"Unknown field: {self.path.text}")
        found = None
        if value is not None:
            found = self.path.value_in(self.struct(value), default=self.config[REPLACE_NULL.name])
        return self.with_part(record, field.schema, found)

    def apply_columns(self, records: SourceColumns) -> SourceColumns | None:
        column = self.column_of(records)
        for name in self.path.steps:
            if not isinstance(column, Fields):
                return None
            names = [each.name for each in column.schema.fields]
            if name not in names:
                return None
            field, inner = column.schema.fields[names.index(name)], column.columns[names.index(name)]
            if field.schema.default is not None:
                return None
            column = inner.of(field.schema)
        return None if column is None else self.with_column(records, column)


class ReplaceField(PartTransform[AnyRecord]):
    purpose = "field replacement"

    @staticmethod
    def _renames(name: str, value: Any) -> None:
        for each in value or ():
            if len(each.split(":")) != 2:
                raise SettingError.of("renames", value, f"Invalid rename mapping: {each}")

    settings: ClassVar[Settings] = Settings(
        Setting("exclude", Type.LIST, [], Importance.MEDIUM, "Fields to leave out; wins over `include`."),
        Setting("include", Type.LIST, [], Importance.MEDIUM, "The only fields to keep."),
        Setting(
            "renames", Type.LIST, [], Importance.MEDIUM, "Fields and their new names, as old:new.", _renames
        ),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._new_names = dict(each.split(":") for each in self.config["renames"])

    def keeps(self, name: str) -> bool:
        include = self.config["include"]
        return name not in self.config["exclude"] and (not include or name in include)

    def renamed(self, name: str) -> str:
        return str(self._new_names.get(name, name))

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        fields = self.mapping(value) if schema is None else self.fields(self.struct(value))
        kept = {self.renamed(name): each for name, each in fields.items() if self.keeps(name)}
        if schema is None:
            return self.with_part(record, None, kept)
        updated = schema.but(
            fields=tuple(
                Field(self.renamed(each.name), each.schema) for each in schema.fields if self.keeps(each.name)
            )
        )
        return self.with_part(record, updated, Struct(updated, kept))


_MASKS: Final[tuple[tuple[type, Any], ...]] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (Decimal, Decimal(0)),
    (datetime, EPOCH),
    (date, EPOCH_DAY),
    (time, time()),
    (str, ""),
    (list, []),
    (Mapping, {}),
)
_READ: Final[tuple[tuple[type, Callable[[str], Any]], ...]] = (
    (int, int),
    (float, float),
    (Decimal, Decimal),
    (str, str),
)


class MaskField(PartTransform[AnyRecord]):
    purpose = "mask fields"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "fields",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "Fields whose values nobody is to see.",
            list_not_empty,
        ),
        Setting(
            "replacement",
            Type.STRING,
            None,
            Importance.LOW,
            "What stands in their place: text, or a number for numbers; without one, what is empty or zero.",
            not_empty,
        ),
        REPLACE_NULL,
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        masked = set(self.config["fields"])
        if schema is None:
            plain = self.mapping(value)
            return self.with_part(
                record, None, plain | {name: self._mask(plain.get(name)) for name in masked}
            )
        fields = self.fields(self.struct(value))
        shown = {name: self._mask(each) if name in masked else each for name, each in fields.items()}
        return self.with_part(record, schema, Struct(schema, shown))

    def _mask(self, value: Any) -> Any:
        replacement = self.config["replacement"]
        if value is None:
            return None
        if replacement is None:
            for kind, mask in _MASKS:
                if isinstance(value, kind):
                    return mask
            raise DataError(f"Cannot mask value of type: {type(value).__name__}")
        for kind, read in _READ:
            if isinstance(value, kind) and not isinstance(value, bool):
                try:
                    return read(replacement)
                except (ValueError, InvalidOperation):
                    raise DataError(f"Unable to convert {replacement} to number") from None
        raise DataError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")


class HoistField(PartTransform[AnyRecord]):
    purpose = "field hoisting"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "field",
            Type.STRING,
            REQUIRED,
            Importance.MEDIUM,
            "The name of the one field that holds what was there.",
        )
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema, name = self.value_of(record), self.schema_of(record), self.config["field"]
        if schema is None:
            return self.with_part(record, None, {name: value})
        updated = struct_of((name, schema))
        return self.with_part(record, updated, Struct(updated, {name: value}))

    def apply_columns(self, records: SourceColumns) -> SourceColumns | None:
        column = self.column_of(records)
        if column is None:
            return None
        return self.with_column(records, Fields(struct_of((self.config["field"], column.schema)), (column,)))


class Flatten(PartTransform[AnyRecord]):
    purpose = "flattening"
    settings: ClassVar[Settings] = Settings(
        Setting("delimiter", Type.STRING, ".", Importance.MEDIUM, "What joins the names of nested fields.")
    )

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            flat: dict[str, Any] = {}
            self._flatten_map(self.mapping(value), "", flat)
            return self.with_part(record, None, flat)
        fields: list[Field] = []
        self._flatten_schema(schema, "", fields, schema.optional, schema.default)
        updated = schema.but(fields=tuple(fields))
        values: dict[str, Any] = {}
        self._flatten_struct(self.struct(value), "", values)
        return self.with_part(record, updated, Struct(updated, values))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.config['delimiter']}{name}" if prefix else name

    def _flatten_map(self, value: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for name, each in value.items():
            full = self._name(prefix, name)
            if isinstance(each, Mapping):
                self._flatten_map(each, full, flat)
            else:
                flat[full] = each

    def _flatten_schema(
        self, schema: Schema, prefix: str, fields: list[Field], is_optional: bool, default: Struct | None
    ) -> None:
        for each in schema.fields:
            full = self._name(prefix, each.name)
            own = each.schema.default
            inherited = own if own is not None or default is None else default.get(each.name)
            optional = is_optional or each.schema.optional
            if each.schema.kind is Kind.STRUCT:
                self._flatten_schema(each.schema, full, fields, optional, inherited)
            elif each.schema.kind is Kind.MAP:
                raise DataError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {full})."
                )
            else:
                fields.append(Field(full, each.schema.but(optional=optional, default=inherited)))

    def _flatten_struct(self, struct: Struct, prefix: str, values: dict[str, Any]) -> None:
        for each in struct.schema.fields:
            full = self._name(prefix, each.name)
            value = struct.get(each.name)
            if isinstance(value, Struct):
                self._flatten_struct(value, full, values)
            elif each.schema.kind is not Kind.STRUCT:
                values[full] = value


class ValueToKey(Transform[AnyRecord]):
    settings: ClassVar[Settings] = Settings(
        Setting(
            "fields",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "Fields of the value that make up the key.",
            list_not_empty,
        ),
        REPLACE_NULL,
        SYNTAX,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self.paths = [FieldPath(name, self.config[SYNTAX.name]) for name in self.config["fields"]]

    def apply(self, record: AnyRecord) -> AnyRecord:
        purpose, value = "copying fields from value to key", record.value
        if record.value_schema is None:
            if not isinstance(value, Mapping):
                raise DataError(f"Only Map objects supported in absence of schema for [{purpose}]")
            key = {path.text: path.value_in(value) for path in self.paths}
            return changed(record, key_schema=None, key=key)
        if not isinstance(value, Struct):
            raise DataError(f"Only Struct objects supported for [{purpose}]")
        fields = []
        for path in self.paths:
            declared = path.declared_in(value.schema)
            if declared is None:
                raise DataError(f"Field does not exist: {path.text}")
            fields.append((path.text, declared.schema))
        schema = struct_of(*fields)
        default = self.config[REPLACE_NULL.name]
        found = {path.text: path.value_in(value, default=default) for path in self.paths}
        return changed(record, key_schema=schema, key=Struct(schema, found))


class SetSchemaMetadata(PartTransform[AnyRecord]):
    purpose = "updating schema metadata"
    settings: ClassVar[Settings] = Settings(
        Setting("schema.name", Type.STRING, None, Importance.HIGH, "The name that the schema gets."),
        Setting("schema.version", Type.INT, None, Importance.HIGH, "The version that the schema gets."),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        if self.config["schema.name"] is None and self.config["schema.version"] is None:
            raise SettingError("Neither schema name nor version configured")

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None and schema is None:
            return record
        if schema is None:
            raise DataError(f"Schema required for [{self.purpose}]")
        name, version = self.config["schema.name"], self.config["schema.version"]
        updated = schema.but(
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
        if isinstance(value, Struct):
            value = Struct(updated, self.fields(value))
        return self.with_part(record, updated, value)


class InsertFieldKey(InsertField[AnyRecord]):
    part = "key"


class InsertFieldValue(InsertField[AnyRecord]):
    part = "value"


class ExtractFieldKey(ExtractField[AnyRecord]):
    part = "key"


class ExtractFieldValue(ExtractField[AnyRecord]):
    part = "value"


class ReplaceFieldKey(ReplaceField[AnyRecord]):
    part = "key"


class ReplaceFieldValue(ReplaceField[AnyRecord]):
    part = "value"


class MaskFieldKey(MaskField[AnyRecord]):
    part = "key"


class MaskFieldValue(MaskField[AnyRecord]):
    part = "value"


class HoistFieldKey(HoistField[AnyRecord]):
    part = "key"


class HoistFieldValue(HoistField[AnyRecord]):
    part = "value"


class FlattenKey(Flatten[AnyRecord]):
    part = "key"


class FlattenValue(Flatten[AnyRecord]):
    part = "value"


class SetSchemaMetadataKey(SetSchemaMetadata[AnyRecord]):
    part = "key"


class SetSchemaMetadataValue(SetSchemaMetadata[AnyRecord]):
    part = "value"
