"""Topics into files of a lake: Parquet, ORC, JSON or CSV in any file system that Spark knows.

Spark reads and writes; a micro-batch is a set of files, which `publishing` makes visible once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ottla.connect.connectors.publishing import Directory, Publication
from ottla.connect.errors import ConnectError, SettingError
from ottla.connect.plugin import Config, SparkSink
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, not_empty, one_of

_FORMATS: Final = ("parquet", "orc", "json", "csv")
_METADATA: Final = ("key", "topic", "partition", "offset", "timestamp")
_TIMES: Final = {"year": "yyyy", "month": "MM", "day": "dd", "hour": "HH", "date": "yyyy-MM-dd"}


def _each_of(*known: str) -> Any:
    def validate(name: str, value: Any) -> None:
        for each in value or ():
            if each not in known:
                raise SettingError.of(name, each, f"Each must be one of: {', '.join(known)}")

    return validate


class LakeSink(SparkSink):
    guarantee: ClassVar[str] = (
        "Exactly once: every record is in exactly one visible file, over kills of worker, Spark and "
        "machine. A micro-batch's files are written to a hidden directory, a manifest names them, and they "
        "are moved to their places; a micro-batch that is run again finds its manifest and only moves what "
        "is left. Resetting the connector's offsets begins anew: "
        "empty the directory then."
    )
    settings: ClassVar[Settings] = Settings(
        Setting(
            "path",
            Type.STRING,
            REQUIRED,
            Importance.HIGH,
            "The directory: a local path, hdfs://, s3a://, abfss:// or gs://, whatever Spark is set up for.",
            not_empty,
        ),
        Setting(
            "format",
            Type.STRING,
            "parquet",
            Importance.HIGH,
            f"What files are: {', '.join(_FORMATS)}.",
            one_of(*_FORMATS),
        ),
        Setting(
            "compression", Type.STRING, None, Importance.LOW, "As Spark has it: snappy, zstd, gzip, none."
        ),
        Setting(
            "partition.fields",
            Type.LIST,
            [],
            Importance.MEDIUM,
            "Fields whose values become directories, as country=DE; also of `metadata.fields`.",
        ),
        Setting(
            "partition.time",
            Type.LIST,
            [],
            Importance.MEDIUM,
            f"Parts of the time that become directories: {', '.join(_TIMES)}. In UTC unless Spark says "
            "otherwise.",
            _each_of(*_TIMES),
        ),
        Setting(
            "partition.time.field",
            Type.STRING,
            None,
            Importance.MEDIUM,
            "The field that has the time: a timestamp, ISO text, or milliseconds; without one, the record's.",
        ),
        Setting(
            "metadata.fields",
            Type.LIST,
            [],
            Importance.MEDIUM,
            f"What else goes into the files besides the fields of the value: {', '.join(_METADATA)}. "
            "All of them where the value has no fields.",
            _each_of(*_METADATA),
        ),
        Setting(
            "behavior.on.null.values",
            Type.STRING,
            "ignore",
            Importance.LOW,
            "ignore or write records without a value, where values have fields.",
            one_of("ignore", "write"),
        ),
        Setting(
            "flush.interval.ms",
            Type.LONG,
            10_000,
            Importance.MEDIUM,
            "How often files are written: longer makes fewer and larger ones.",
            at_least(0),
        ),
        Setting(
            "flush.size",
            Type.LONG,
            1_000_000,
            Importance.MEDIUM,
            "The most records that are written at a time, and to a file.",
            at_least(1),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._publication: Publication | None = None

    def trigger(self) -> Mapping[str, Any]:
        return {"processingTime": f"{self.config['flush.interval.ms']} milliseconds"}

    def read_options(self) -> Mapping[str, str]:
        return {"maxOffsetsPerTrigger": str(self.config["flush.size"])}

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        if "://" in given["path"] or given["path"].startswith("/"):
            return {}
        return {"path": [f"{given['path']}: give the whole path; workers run in directories of their own"]}

    def start(self, given: Config) -> None:
        super().start(given)
        for name in self.config["partition.fields"]:
            if name.startswith(("_", ".")):
                raise ConnectError(
                    f"partition.fields={name}: readers take directories whose names begin with {name[0]} for "
                    "hidden. Rename the field with the transform ReplaceField (renames)"
                )

    def write(self, batch: Any, batch_id: int) -> None:
        rows = self._columns(batch)
        writer = rows.write.format(self.config["format"]).option(
            "maxRecordsPerFile", self.config["flush.size"]
        )
        if self.config["compression"]:
            writer = writer.option("compression", self.config["compression"])
        if self.config["format"] == "csv":
            writer = writer.option("header", "true")
        directories = [*self.config["partition.fields"], *self.config["partition.time"]]
        if directories:
            writer = writer.partitionBy(*directories)
        if self._publication is None:
            place = Directory(batch.sparkSession, self.config["path"])
            self._publication = Publication(place, self.query_id)
        self._publication.publish(batch_id, writer.save)

    def _columns(self, batch: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        metadata = self.config["metadata.fields"]
        if batch.schema["value"].dataType.typeName() == "struct":
            if self.config["behavior.on.null.values"] == "ignore":
                batch = batch.where("value IS NOT NULL")
            fields = batch.schema["value"].dataType.names
            if twice := sorted(set(fields) & {*metadata, *self.config["partition.time"]}):
                raise ConnectError(
                    f"the value has a field {twice[0]} of its own: rename it, or take it out "
                    "of metadata.fields and partition.time"
                )
            kept = [F.col("value")[name].alias(name) for name in fields]
        else:
            kept, metadata = [F.col("value")], list(_METADATA)
        stamp = self._time(batch)
        times = [F.date_format(stamp, _TIMES[each]).alias(each) for each in self.config["partition.time"]]
        rows = batch.select(*kept, *(F.col(name) for name in metadata), *times)
        if unknown := [name for name in self.config["partition.fields"] if name not in rows.columns]:
            raise ConnectError(
                f"partition.fields names {unknown[0]}, which is none of {', '.join(rows.columns)}: give "
                "value.schema, or the field in metadata.fields"
            )
        return rows

    def _time(self, batch: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        name = self.config["partition.time.field"]
        if name is None or not self.config["partition.time"]:
            return F.col("timestamp")
        kind = batch.schema["value"].dataType
        if kind.typeName() != "struct" or name not in kind.names:
            raise ConnectError(f"partition.time.field={name}: the value has no such field; give value.schema")
        column = F.col("value")[name]
        if kind[name].dataType.typeName() in {"long", "integer"}:
            return F.timestamp_millis(column)
        return column.cast("timestamp")
