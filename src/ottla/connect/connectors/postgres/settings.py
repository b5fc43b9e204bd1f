"""The settings, under Debezium's names and with its defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ottla.connect.errors import SettingError
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type, Validator
from ottla.connect.settings.validators import all_of, at_least, not_empty, one_of

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _patterns(name: str, value: Any) -> None:
    for pattern in value or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingError.of(name, pattern, f"Invalid regex: {error}") from None


def _slot(name: str, value: Any) -> None:
    if value is None or re.fullmatch(r"[a-z0-9_]{1,63}", value) is None:
        raise SettingError.of(name, value, "Valid names have up to 63 of a-z, 0-9 and _")


def _prefix(name: str, value: Any) -> None:
    if value is not None and re.fullmatch(r"[a-zA-Z0-9._-]+", value) is None:
        raise SettingError.of(name, value, "Valid names consist of letters, digits, dots, hyphens and _")


def _codes(name: str, value: Any) -> None:
    for code in value or ():
        one_of("c", "u", "d", "t", "r", "none")(name, code)


def _list(name: str, doc: str) -> Setting:
    return Setting(name, Type.LIST, [], _MEDIUM, doc, _patterns)


def _choice(name: str, choices: Sequence[str], doc: str, importance: Importance = _LOW) -> Setting:
    return Setting(name, Type.STRING, choices[0], importance, doc, one_of(*choices))


def _millis(name: str, default: int, doc: str) -> Setting:
    return Setting(name, Type.LONG, default, _LOW, doc, at_least(0))


def _number(name: str, default: int, doc: str, validator: Validator) -> Setting:
    return Setting(name, Type.INT, default, _LOW, doc, validator)


SETTINGS: Final = Settings(
    Setting("database.hostname", Type.STRING, REQUIRED, _HIGH, "Where the server is.", not_empty),
    Setting("database.port", Type.INT, 5432, _HIGH, "Its port.", at_least(1, 65535)),
    Setting(
        "database.user",
        Type.STRING,
        REQUIRED,
        _HIGH,
        "A user with the attribute REPLICATION who may read the tables.",
        not_empty,
    ),
    Setting("database.password", Type.PASSWORD, None, _HIGH, "The user's password."),
    Setting("database.dbname", Type.STRING, REQUIRED, _HIGH, "The database.", not_empty),
    Setting(
        "topic.prefix",
        Type.STRING,
        REQUIRED,
        _HIGH,
        "Names the database: topics are PREFIX.SCHEMA.TABLE. To be kept, and no other connector's.",
        all_of(not_empty, _prefix),
    ),
    _list("table.include.list", "Which tables: patterns of schema.table, separated by commas; else all."),
    _list("table.exclude.list", "Which tables not."),
    _list("schema.include.list", "Which schemas; else all."),
    _list("schema.exclude.list", "Which schemas not."),
    _list(
        "column.include.list", "Which columns: patterns of schema.table.column; else all. Keys always are."
    ),
    _list("column.exclude.list", "Which columns not."),
    _choice("plugin.name", ["pgoutput"], "How the server writes changes.", _MEDIUM),
    Setting(
        "slot.name",
        Type.STRING,
        "debezium",
        _MEDIUM,
        "The replication slot, made if it is missing. One for each connector.",
        _slot,
    ),
    Setting(
        "slot.drop.on.stop",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether the slot goes when the task stops. What changes until the next start is lost then.",
    ),
    _number("slot.max.retries", 6, "How often a slot is asked for that another process has.", at_least(0)),
    _millis("slot.retry.delay.ms", 10000, "How long that takes each time."),
    Setting(
        "publication.name",
        Type.STRING,
        "dbz_publication",
        _MEDIUM,
        "The publication, which says what the server sends.",
        not_empty,
    ),
    _choice(
        "publication.autocreate.mode",
        ["all_tables", "disabled", "filtered", "no_tables"],
        "What a publication that is missing is made of: all_tables (needs a superuser), filtered (those of "
        "the include lists, kept up to date at each start), no_tables; or disabled.",
        _MEDIUM,
    ),
    _choice(
        "snapshot.mode",
        ["initial", "always", "initial_only", "no_data", "never", "when_needed"],
        "When the rows are read that are there: initial (before the first change), always (at each start), "
        "initial_only (and nothing else), no_data or never (changes only), when_needed (also when the slot "
        "is gone).",
        _MEDIUM,
    ),
    _choice(
        "decimal.handling.mode",
        ["precise", "double", "string"],
        "How numeric is written: precise (Decimal), double or string.",
        _MEDIUM,
    ),
    _choice(
        "time.precision.mode",
        ["adaptive", "adaptive_time_microseconds", "connect"],
        "How times are written: by the precision of the column, or as Kafka Connect's own types.",
    ),
    _choice(
        "binary.handling.mode",
        ["bytes", "base64", "base64-url-safe", "hex"],
        "How bytea is written.",
    ),
    _choice("interval.handling.mode", ["numeric", "string"], "Intervals as microseconds, or in ISO 8601."),
    _choice("hstore.handling.mode", ["json", "map"], "How hstore is written."),
    _number("money.fraction.digits", 2, "Digits of money after the point.", at_least(0)),
    Setting(
        "include.unknown.datatypes",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether columns of types that are not known here come as the bytes of their text, or not at all.",
    ),
    Setting(
        "unavailable.value.placeholder",
        Type.STRING,
        "__debezium_unavailable_value",
        _LOW,
        "Stands for a large value that an update left alone, which the server does not send. With REPLICA "
        "IDENTITY FULL it does.",
    ),
    Setting(
        "tombstones.on.delete",
        Type.BOOLEAN,
        True,
        _MEDIUM,
        "Whether an empty record follows a delete, so that compaction forgets the row.",
    ),
    Setting(
        "skipped.operations",
        Type.LIST,
        ["none"],
        _LOW,
        "Operations that are left out: c, u, d, t, r. Debezium leaves truncates (t) out unless told none.",
        _codes,
    ),
    Setting(
        "provide.transaction.metadata",
        Type.BOOLEAN,
        False,
        _LOW,
        "Whether records say their place in their transaction, and a topic when transactions begin and end.",
    ),
    Setting("topic.transaction", Type.STRING, "transaction", _LOW, "That topic is PREFIX.THIS.", not_empty),
    _millis(
        "heartbeat.interval.ms",
        0,
        "How often a record says that the connector is there, and stores how far it is. 0: never.",
    ),
    Setting(
        "topic.heartbeat.prefix",
        Type.STRING,
        "__debezium-heartbeat",
        _LOW,
        "The topic of heartbeats is THIS.PREFIX.",
        not_empty,
    ),
    Setting(
        "heartbeat.action.query",
        Type.STRING,
        None,
        _LOW,
        "A statement for each heartbeat, to have changes in a database that has few.",
    ),
    _number("max.batch.size", 2048, "The most records that are given at a time.", at_least(1)),
    _millis("status.update.interval.ms", 10000, "How often the server is told how far the connector is."),
    _number(
        "errors.max.retries",
        -1,
        "How often a connection that is lost is tried again before the task fails. -1: forever.",
        at_least(-1),
    ),
    _millis("retriable.restart.connector.wait.ms", 10000, "The longest wait between two tries."),
    _choice(
        "database.sslmode",
        ["prefer", "disable", "allow", "require", "verify-ca", "verify-full"],
        "Whether the connection is encrypted, and the server's certificate checked.",
        _MEDIUM,
    ),
    Setting("database.sslcert", Type.STRING, None, _MEDIUM, "A file with the client's certificate."),
    Setting("database.sslkey", Type.STRING, None, _MEDIUM, "A file with its key."),
    Setting("database.sslpassword", Type.PASSWORD, None, _MEDIUM, "The key's password."),
    Setting("database.sslrootcert", Type.STRING, None, _MEDIUM, "A file with authorities to trust."),
)
