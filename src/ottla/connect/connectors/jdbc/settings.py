"""The settings, under the names and with the defaults of Confluent's JDBC connector."""

from __future__ import annotations

from typing import Final

from ottla.connect.connectors.jdbc.database import known_url
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import at_least, one_of

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"

_CONNECTION: Final = Settings(
    Setting(
        "connection.url",
        Type.STRING,
        REQUIRED,
        _HIGH,
        "The database: jdbc:postgresql://host:5432/database (pip install 'ottla[postgres]') or "
        "jdbc:sqlite:/path.",
        known_url,
    ),
    Setting("connection.user", Type.STRING, None, _HIGH, "The user."),
    Setting("connection.password", Type.PASSWORD, None, _HIGH, "The user's password."),
    Setting(
        "connection.attempts",
        Type.INT,
        3,
        _LOW,
        "How often a connection is tried before the task fails, if none came about since it started.",
        at_least(1),
    ),
    Setting(
        "connection.backoff.ms", Type.LONG, 10000, _LOW, "The longest wait between two tries.", at_least(0)
    ),
)

SOURCE_SETTINGS: Final = _CONNECTION + Settings(
    Setting(
        "mode",
        Type.STRING,
        REQUIRED,
        _HIGH,
        "bulk: all rows each time; incrementing: rows with a larger number than before; timestamp: with a "
        "later time; timestamp+incrementing: with a later time, or the same and a larger number.",
        one_of(BULK, INCREMENTING, TIMESTAMP, BOTH),
    ),
    Setting(
        "incrementing.column.name",
        Type.STRING,
        "",
        _MEDIUM,
        "The column with numbers that only grow; empty: the one that the database counts itself.",
    ),
    Setting(
        "timestamp.column.name",
        Type.LIST,
        [],
        _MEDIUM,
        "The column with the time of the last change; of several, the first that is not null.",
    ),
    Setting(
        "timestamp.initial",
        Type.LONG,
        None,
        _LOW,
        "Where to begin, in milliseconds since 1970; -1 for now. Else with the first row.",
    ),
    Setting(
        "timestamp.delay.interval.ms",
        Type.LONG,
        0,
        _HIGH,
        "How old a row has to be, so that transactions that began before it are done.",
        at_least(0),
    ),
    Setting(
        "validate.non.null",
        Type.BOOLEAN,
        True,
        _LOW,
        "Whether columns that say what is new have to be NOT NULL: a row without a value is never new.",
    ),
    Setting("table.whitelist", Type.LIST, [], _MEDIUM, "Which tables, as table or schema.table; else all."),
    Setting("table.blacklist", Type.LIST, [], _MEDIUM, "Which tables not."),
    Setting("schema.pattern", Type.STRING, None, _HIGH, "Which schemas, as LIKE has it; else all."),
    Setting("table.types", Type.LIST, ["TABLE"], _LOW, "TABLE, VIEW or both."),
    Setting(
        "query",
        Type.STRING,
        "",
        _MEDIUM,
        "A SELECT in place of tables; a WHERE is added to it by the mode, so it has none itself unless the "
        "mode is bulk.",
    ),
    Setting("query.suffix", Type.STRING, "", _LOW, "Comes at the end of each query."),
    Setting(
        "topic.prefix",
        Type.STRING,
        REQUIRED,
        _HIGH,
        "Topics are this and the table's name; of a query, this.",
    ),
    Setting(
        "poll.interval.ms", Type.INT, 5000, _HIGH, "How often a table is asked for what is new.", at_least(0)
    ),
    Setting("batch.max.rows", Type.INT, 100, _LOW, "How many rows are given at a time.", at_least(1)),
    Setting(
        "table.poll.interval.ms", Type.LONG, 60000, _LOW, "How often new tables are looked for.", at_least(1)
    ),
    Setting(
        "numeric.mapping",
        Type.STRING,
        "none",
        _LOW,
        "How numeric is written: none (Decimal), precision_only (whole numbers as integers), best_fit (the "
        "others as doubles), best_fit_eager_double (also where digits are lost).",
        one_of("none", "precision_only", "best_fit", "best_fit_eager_double"),
    ),
)

SINK_SETTINGS: Final = _CONNECTION + Settings(
    Setting(
        "insert.mode",
        Type.STRING,
        "insert",
        _HIGH,
        "insert, upsert (rows of the same key are replaced; what comes again changes nothing) or update.",
        one_of("insert", "upsert", "update"),
    ),
    Setting(
        "pk.mode",
        Type.STRING,
        "none",
        _HIGH,
        "What a row's key is: none, kafka (topic, partition and offset), record_key, record_value.",
        one_of("none", "kafka", "record_key", "record_value"),
    ),
    Setting(
        "pk.fields",
        Type.LIST,
        [],
        _MEDIUM,
        "The columns of the key: names for kafka's three, a primitive key's one, or fields of key or value.",
    ),
    Setting(
        "delete.enabled",
        Type.BOOLEAN,
        False,
        _MEDIUM,
        "Whether records without a value delete the row of their key. Needs pk.mode=record_key.",
    ),
    Setting(
        "table.name.format",
        Type.STRING,
        "${topic}",
        _MEDIUM,
        "The table, as table or schema.table; ${topic} stands for the topic.",
    ),
    Setting("fields.whitelist", Type.LIST, [], _MEDIUM, "Which fields of the value; else all."),
    Setting(
        "auto.create", Type.BOOLEAN, False, _MEDIUM, "Whether a missing table is created, by the schema."
    ),
    Setting("auto.evolve", Type.BOOLEAN, False, _MEDIUM, "Whether missing columns are added, by the schema."),
    Setting(
        "batch.size", Type.INT, 3000, _MEDIUM, "How many rows are written in one statement.", at_least(1)
    ),
    Setting("max.retries", Type.INT, 10, _MEDIUM, "How often a failed write is tried again.", at_least(0)),
    Setting(
        "retry.backoff.ms", Type.INT, 3000, _MEDIUM, "At least how long to wait before that.", at_least(0)
    ),
)
