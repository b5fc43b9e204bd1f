"""Transforms of moments in time: TimestampConverter and TimestampRouter."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any, ClassVar, Final

from ottla.connect.data import (
    DATE,
    DATE_SCHEMA,
    EPOCH_DAY,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Field,
    Kind,
    Schema,
    Struct,
    from_millis,
    to_millis,
)
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugin import AnyRecord, Config, Transform
from ottla.connect.records import changed
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import one_of
from ottla.connect.transforms.java_time import JavaFormat
from ottla.connect.transforms.part import REPLACE_NULL, PartTransform

_SCHEMAS: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_PER_MILLI: Final = {"microseconds": 1000, "nanoseconds": 1_000_000}


class TimestampConverter(PartTransform[AnyRecord]):
    purpose = "converting timestamp formats"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "field", Type.STRING, "", Importance.HIGH, "The field with the moment; empty if the whole is one."
        ),
        Setting(
            "target.type",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "What it becomes: string, unix, Date, Time or Timestamp.",
            one_of(*_SCHEMAS),
        ),
        Setting(
            "format",
            Type.STRING,
            "",
            Importance.MEDIUM,
            "The pattern of moments as text, after Java's SimpleDateFormat, such as yyyy-MM-dd HH:mm:ss.",
        ),
        Setting(
            "unix.precision",
            Type.STRING,
            "milliseconds",
            Importance.LOW,
            "What Unix times count: seconds, milliseconds, microseconds or nanoseconds.",
            one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
        ),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._field, self._target = self.config["field"], self.config["target.type"]
        pattern = self.config["format"]
        if self._target == "string" and not pattern.strip():
            raise SettingError(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        self._format = JavaFormat(pattern) if pattern.strip() else None

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            if value is None or not self._field:
                return self.with_part(record, None, self._convert(value, None))
            plain = self.mapping(value)
            converted = self._convert(plain.get(self._field), None)
            return self.with_part(record, None, plain | {self._field: converted})
        if not self._field:
            return self.with_part(record, self._schema(schema), self._convert(value, schema))
        fields = [
            Field(each.name, self._schema(each.schema)) if each.name == self._field else each
            for each in schema.fields
        ]
        updated = schema.but(fields=tuple(fields))
        if value is None:
            return self.with_part(record, updated, None)
        values = self.fields(self.struct(value))
        declared = schema.field(self._field)
        if declared is not None:
            values[self._field] = self._convert(values[self._field], declared.schema)
        return self.with_part(record, updated, Struct(updated, values))

    def _schema(self, before: Schema) -> Schema:
        return _SCHEMAS[self._target].but(optional=before.optional)

    def _convert(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        return self._written(self._moment(value, schema))

    def _moment(self, value: Any, schema: Schema | None) -> datetime:
        if (
            schema is not None
            and schema.name not in {DATE, TIME, TIMESTAMP}
            and schema.kind
            not in {
                Kind.STRING,
                Kind.INT64,
            }
        ):
            raise DataError(f"Schema {schema.kind.name} does not correspond to a known timestamp type format")
        match value:
            case datetime():
                return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            case date():
                return datetime(value.year, value.month, value.day, tzinfo=UTC)
            case time():
                return datetime.combine(EPOCH_DAY, value, tzinfo=UTC)
            case str():
                return self._parsed(value)
            case int() if not isinstance(value, bool):
                precision = self.config["unix.precision"]
                if precision == "seconds":
                    return from_millis(value * 1000)
                per_milli = _PER_MILLI.get(precision, 1)
                # Java cuts towards zero.
                return from_millis(abs(value) // per_milli * (1 if value >= 0 else -1))
            case _:
                raise DataError(
                    f"TimestampConverter does not support {type(value).__name__} objects as timestamps"
                )

    def _parsed(self, text: str) -> datetime:
        if self._format is None:
            raise DataError(f"{text!r} cannot be read as a timestamp: TimestampConverter has no format")
        try:
            return self._format.parse(text)
        except ValueError:
            raise DataError(
                f"Could not parse timestamp: value ({text}) does not match pattern ({self._format.pattern})"
            ) from None

    def _written(self, moment: datetime) -> Any:
        match self._target:
            case "string":
                assert self._format is not None
                return self._format.format(moment)
            case "unix":
                millis, precision = to_millis(moment), self.config["unix.precision"]
                if precision == "seconds":
                    return abs(millis) // 1000 * (1 if millis >= 0 else -1)
                return millis * _PER_MILLI.get(precision, 1)
            case "Date":
                return moment.date()
            case "Time":
                return moment.time()
            case _:
                return moment


class TimestampRouter(Transform[AnyRecord]):
    settings: ClassVar[Settings] = Settings(
        Setting(
            "topic.format",
            Type.STRING,
            "${topic}-${timestamp}",
            Importance.HIGH,
            "The new topic, with ${topic} and ${timestamp} in it.",
        ),
        Setting(
            "timestamp.format",
            Type.STRING,
            "yyyyMMdd",
            Importance.HIGH,
            "The pattern of the timestamp, after Java's SimpleDateFormat.",
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._format = JavaFormat(self.config["timestamp.format"])

    def apply(self, record: AnyRecord) -> AnyRecord:
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on record of topic {record.topic}")
        stamp = self._format.format(from_millis(record.timestamp_ms))
        named = self.config["topic.format"].replace("${topic}", record.topic)
        return changed(record, topic=named.replace("${timestamp}", stamp))


class TimestampConverterKey(TimestampConverter[AnyRecord]):
    part = "key"


class TimestampConverterValue(TimestampConverter[AnyRecord]):
    part = "value"
