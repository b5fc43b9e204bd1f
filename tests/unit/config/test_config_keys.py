"""Every declaration is sound, and text becomes values as Kafka's ConfigDef does it."""

from __future__ import annotations

import pytest

from ottla.config import BROKER_KEYS, TOPIC_KEYS, ConfigError, ConfigKey, ConfigType

ALL_KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_a_declared_default_is_a_value_the_key_accepts(key: ConfigKey) -> None:
    text = key.format(key.default)
    if text is not None:
        assert key.parse(text) == key.default


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_documentation_is_a_sentence(key: ConfigKey) -> None:
    assert key.doc[0].isupper() or key.doc.startswith(("log.", "min."))
    assert key.doc.endswith(".")


def test_every_topic_key_falls_back_on_declared_broker_keys_with_its_own_default() -> None:
    for key in TOPIC_KEYS.values():
        if not key.synonyms:
            # Kafka has no broker keys for these.
            assert key.internal or key.replicas or not key.effective
            continue
        weakest = key.synonyms[-1]
        default = BROKER_KEYS[weakest.name].default
        assert isinstance(default, bool | str | tuple | float) or default is not None
        assert (default * weakest.factor if weakest.factor > 1 else default) == key.default
        for stronger in key.synonyms[:-1]:
            assert BROKER_KEYS[stronger.name].default is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("log.segment.bytes", " 2097152 ", 2097152),
        ("log.segment.bytes", "+2097152", 2097152),
        ("log.retention.bytes", "-1", -1),
        ("log.retention.bytes", "9223372036854775807", 2**63 - 1),
        ("auto.create.topics.enable", "TRUE", True),
        ("auto.create.topics.enable", "false ", False),
        ("log.cleaner.min.cleanable.ratio", "1e-1", 0.1),
        ("log.dirs", "/a , /b,/c", ("/a", "/b", "/c")),
        ("log.cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("compression.type", "zstd", "zstd"),
    ],
)
def test_values_are_parsed(name: str, text: str, value: object) -> None:
    parsed = BROKER_KEYS[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.segment.bytes", "100", "log.segment.bytes=100: must be at least 1048576"),
        ("log.segment.bytes", "1_048_576", "log.segment.bytes=1_048_576: must be a whole number of 32 bits"),
        (
            "log.segment.bytes",
            "2147483648",
            "log.segment.bytes=2147483648: must be a whole number of 32 bits",
        ),
        ("log.segment.bytes", "1GB", "log.segment.bytes=1GB: must be a whole number of 32 bits"),
        ("log.retention.bytes", "9223372036854775808", "must be a whole number of 64 bits"),
        ("offsets.topic.replication.factor", "40000", "must be a whole number of 16 bits"),
        ("compression.gzip.level", "0", "compression.gzip.level=0: must be between 1 and 9 or -1"),
        ("compression.zstd.level", "23", "compression.zstd.level=23: must be between -131072 and 22"),
        ("log.cleaner.min.cleanable.ratio", "1.1", "must be between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "must be a number"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: must be true or false"),
        ("compression.type", "brotli", "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy", "compact,purge", "must be any of compact, delete"),
        ("log.dirs", "/a,,/b", "must not have empty entries"),
        ("log.dirs", "/a,/a", "must not name an entry twice"),
        ("log.dirs", "", "log.dirs=: must not be empty"),
    ],
)
def test_a_refusal_names_key_value_and_bound(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BROKER_KEYS[name].parse(text)
    assert message in str(refused.value)
    assert name in str(refused.value)


def test_a_password_is_never_shown() -> None:
    key = ConfigKey("ssl.key.password", ConfigType.PASSWORD, None, "Secret.", choices=("right",))
    assert key.sensitive
    with pytest.raises(ConfigError) as refused:
        key.parse("hunter2")
    assert "hunter2" not in str(refused.value)


def test_numbers_are_written_as_kafka_writes_them() -> None:
    key = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    assert key.format(key.default) == "1.7976931348623157E308"
    assert key.format(0.5) == "0.5"
