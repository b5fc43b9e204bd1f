"""Layers, precedence, rules between keys, description of a broker's settings."""

from __future__ import annotations

import pytest

from ottla.config import (
    BROKER_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Endpoint,
    advertise,
    resolve_topic,
    validate_broker,
)


def broker(**properties: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})


def test_an_empty_file_gives_a_working_broker() -> None:
    config = BrokerConfig.from_properties({})
    assert config.node_id == 1
    assert config.log_dirs == ("ottla-data",)
    assert config.metadata_log_dir == "ottla-data"
    assert config.broker_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners is None
    assert config.boolean("auto.create.topics.enable") is True
    assert config.integer("num.partitions") == 1
    assert config.number("log.cleaner.io.buffer.load.factor") == 0.9
    assert config.optional_string("broker.rack") is None


def test_headers_for_a_collector_are_shown_to_nobody() -> None:
    config = broker(ottla_otel_headers="X-Api-Key=a=b, X-Other=c")
    assert config.otel_headers == {"X-Api-Key": "a=b", "X-Other": "c"}
    (described,) = (each for each in config.describe() if each.name == "ottla.otel.headers")
    assert described.sensitive
    assert described.value is None


def test_unknown_keys_are_kept_apart_and_sorted() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "x", "ssl.key": "y", "num.partitions": "3"})
    assert config.unknown_keys == ("ssl.key", "zookeeper.connect")
    assert config.integer("num.partitions") == 3


def test_reading_a_key_as_another_type_is_a_bug_that_shows() -> None:
    config = BrokerConfig.from_properties({})
    with pytest.raises(TypeError, match=r"broker\.rack"):
        config.string("broker.rack")
    with pytest.raises(KeyError):
        config.integer("no.such.key")


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-7"}, -1),
    ],
)
def test_retention_is_the_finest_unit_that_is_set(properties: dict[str, str], retention_ms: int) -> None:
    assert resolve_topic(BrokerConfig.from_properties(properties), {}).retention_ms == retention_ms


def test_other_settings_with_two_names() -> None:
    config = BrokerConfig.from_properties(
        {"log.roll.hours": "1", "log.roll.jitter.hours": "2", "log.flush.scheduler.interval.ms": "5"}
    )
    resolved = resolve_topic(config, {})
    assert (resolved.segment_ms, resolved.segment_jitter_ms, resolved.flush_ms) == (3_600_000, 7_200_000, 5)
    config = BrokerConfig.from_properties(
        {"log.roll.ms": "9", "log.roll.hours": "1", "log.flush.interval.ms": "7"}
    )
    assert (resolve_topic(config, {}).segment_ms, resolve_topic(config, {}).flush_ms) == (9, 7)


def test_log_dirs_wins_over_log_dir() -> None:
    assert broker(log_dir="/a").log_dirs == ("/a",)
    config = BrokerConfig.from_properties({"log.dir": "/a", "log.dirs": "/b,/c", "metadata.log.dir": "/m"})
    assert config.log_dirs == ("/b", "/c")
    assert config.metadata_log_dir == "/m"


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert broker(broker_id="7").node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id=7: must equal node\.id=8"):
        broker(broker_id="7", node_id="8")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"process.roles": "broker"}, "process.roles=broker: say where the controllers are"),
        (
            {"process.roles": "broker", "controller.quorum.voters": "1@localhost:1"},
            "controller.quorum.voters: must not have this node, 1",
        ),
        (
            {
                "process.roles": "broker",
                "controller.quorum.voters": "2@localhost:1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            },
            "listeners: CONTROLLER is in controller.listener.names, but process.roles=broker",
        ),
        (
            {"process.roles": "controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "listeners: PLAINTEXT must be in controller.listener.names=CONTROLLER",
        ),
        ({"controller.quorum.voters": "1@a:9093,b:9093"}, "must be id@host:port"),
        ({"controller.quorum.voters": "1@a:9093,1@b:9093"}, "must not name node 1 twice"),
        ({"controller.quorum.voters": "2@b:9093"}, "must have this node, 1@host:port"),
        ({"listeners": "9092"}, "listeners=9092: must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "port from 0 to 65535"),
        ({"listeners": "PLAINTEXT://:1,plaintext://:2"}, "must not use the listener name PLAINTEXT twice"),
        ({"listeners": "CONTROLLER://:9093"}, "must have a listener for clients"),
        (
            {"listeners": "X://:9092", "listener.security.protocol.map": "X:TLS"},
            "listener.security.protocol.map: X:TLS is none of PLAINTEXT, SSL",
        ),
        ({"listener.name.plaintext.max.connections": "x"}, "listener.name.plaintext.max.connections=x: must"),
        ({"listeners": "OUTSIDE://:9092"}, "OUTSIDE must be in listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "must be NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients can connect to"),
        ({"advertised.listeners": "OTHER://h:9092"}, "OTHER must be one of listeners"),
        ({"authorizer.class.name": "x.Y"}, "authorizer.class.name=x.Y"),
        ({"early.start.listeners": "OTHER"}, "early.start.listeners: OTHER must be one of listeners"),
        ({"super.users": "User:a;b"}, "super.users=b: must be as User:b"),
        ({"queued.max.request.bytes": "5"}, "must be at least socket.request.max.bytes=104857600"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0: must be at least 1"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "must be address:count"),
        ({"replica.fetch.wait.max.ms": "40000"}, "must be at most replica.socket.timeout.ms=30000"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0: must be at least 1"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "must be more than 1048576"),
        (
            {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
            "must be at most",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(properties)
    assert message in str(refused.value)


def test_named_listeners_map_to_plaintext() -> None:
    config = BrokerConfig.from_properties(
        {"listeners": "inside://[::1]:9092", "listener.security.protocol.map": "INSIDE:PLAINTEXT"}
    )
    assert config.broker_listeners == (Endpoint("INSIDE", "::1", 9092),)
    assert str(config.broker_listeners[0]) == "INSIDE://[::1]:9092"


@pytest.mark.parametrize(
    ("bound", "advertised", "expected"),
    [
        (Endpoint("P", "127.0.0.1", 5), None, Endpoint("P", "127.0.0.1", 5)),
        (Endpoint("P", "", 5), None, Endpoint("P", "name", 5)),
        (Endpoint("P", "0.0.0.0", 5), None, Endpoint("P", "name", 5)),
        (Endpoint("P", "", 5), (Endpoint("P", "outside", 9),), Endpoint("P", "outside", 9)),
        (Endpoint("P", "", 5), (Endpoint("P", "outside", 0),), Endpoint("P", "outside", 5)),
    ],
)
def test_clients_are_told_an_address_they_can_use(
    bound: Endpoint, advertised: tuple[Endpoint, ...] | None, expected: Endpoint
) -> None:
    assert advertise([bound], advertised, lambda: "name") == (expected,)


def test_dynamic_settings_win_over_static_ones_broker_over_cluster() -> None:
    static = BrokerConfig.from_properties({"log.retention.ms": "1", "message.max.bytes": "10"})
    config = static.with_dynamic(
        {"log.retention.ms": "2", "max.connections": "5"}, {"message.max.bytes": "30", "max.connections": "6"}
    )
    resolved = resolve_topic(config, {})
    assert (resolved.retention_ms, resolved.max_message_bytes) == (2, 30)
    assert config.integer("max.connections") == 6
    assert static.integer("max.connections") == 2**31 - 1
    assert config.with_dynamic({}, {}).integer("message.max.bytes") == 10


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("127.0.0.1:9404", ("127.0.0.1", 9404)),
        (":0", ("", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("metrics.example.org:1", ("metrics.example.org", 1)),
    ],
)
def test_the_listener_for_metrics(text: str, address: tuple[str, int] | None) -> None:
    found = BrokerConfig.from_properties({"ottla.metrics.listener": text}).metrics_listener
    assert found == address
    assert (str(found) if found else "") == text


@pytest.mark.parametrize(
    "text", ["9404", "127.0.0.1", "127.0.0.1:65536", "http://127.0.0.1:9404", "::1:9404"]
)
def test_a_listener_for_metrics_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({"ottla.metrics.listener": text})
    assert str(refused.value).startswith(f"ottla.metrics.listener={text}: must be host:port")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"node.id": "2"}, "node.id: cannot be changed while the broker runs"),
        ({"log.retention.hours": "2"}, "cannot be changed while the broker runs"),
        ({"message.max.bytes": "-1"}, "message.max.bytes=-1: must be at least 0"),
        ({"message.max.byte": "1"}, "did you mean message.max.bytes?"),
    ],
)
def test_dynamic_settings_are_checked(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_broker(overrides, per_broker=True)
    assert message in str(refused.value)


def test_description_has_source_and_synonyms() -> None:
    config = BrokerConfig.from_properties(
        {"log.retention.hours": "2", "message.max.bytes": "7"}
    ).with_dynamic({"message.max.bytes": "8"}, {"message.max.bytes": "9"})
    entries = {entry.name: entry for entry in config.describe()}
    assert [name for name, key in BROKER_KEYS.items() if not key.internal] == list(entries)

    size = entries["message.max.bytes"]
    assert (size.value, size.source, size.read_only) == ("9", ConfigSource.BROKER, False)
    assert [(synonym.value, synonym.source) for synonym in size.synonyms] == [
        ("9", ConfigSource.BROKER),
        ("8", ConfigSource.CLUSTER_DEFAULT),
        ("7", ConfigSource.STATIC),
        ("1048588", ConfigSource.DEFAULT),
    ]
    hours = entries["log.retention.hours"]
    assert (hours.value, hours.source, hours.read_only) == ("2", ConfigSource.STATIC, True)
    unset = entries["log.retention.ms"]
    assert (unset.value, unset.source, unset.synonyms) == (None, ConfigSource.DEFAULT, ())
    assert entries["node.id"].documentation.startswith("Number of this node")


def test_description_can_be_limited() -> None:
    config = BrokerConfig.from_properties({}).with_dynamic({"max.connections": "5"}, {})
    assert [entry.name for entry in config.describe({"node.id", "nonsense"})] == ["node.id"]
    assert [(entry.name, entry.value) for entry in config.describe_cluster_default()] == [
        ("max.connections", "5")
    ]
    assert config.describe_cluster_default({"node.id"}) == []


def test_internal_keys_are_described_only_when_set() -> None:
    name = "log.initial.task.delay.ms"
    assert BrokerConfig.from_properties({}).describe({name}) == []
    assert [entry.value for entry in BrokerConfig.from_properties({name: "1"}).describe({name})] == ["1"]


def test_settings_of_another_version_are_kept_and_described_without_their_value() -> None:
    config = BrokerConfig.from_properties({}).with_dynamic(
        {"tier.url": "s3", "message.max.bytes": "many", "node.id": "7"}, {"message.max.bytes": "9"}
    )
    assert config.integer("message.max.bytes") == 9
    assert {(setting.source, setting.name, setting.text) for setting in config.unused} == {
        (ConfigSource.CLUSTER_DEFAULT, "tier.url", "s3"),
        (ConfigSource.CLUSTER_DEFAULT, "message.max.bytes", "many"),
        (ConfigSource.CLUSTER_DEFAULT, "node.id", "7"),
    }
    (unknown,) = config.describe({"tier.url"})
    assert (unknown.value, unknown.sensitive, unknown.source) == (None, True, ConfigSource.CLUSTER_DEFAULT)
    assert [entry.name for entry in config.describe_cluster_default()] == [
        "tier.url",
        "message.max.bytes",
        "node.id",
    ]


def test_settings_in_force_that_contradict_an_edited_file_are_left_out() -> None:
    edited = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "4"})
    stored = {"log.cleaner.min.compaction.lag.ms": "5", "message.max.bytes": "9"}
    with pytest.raises(ConfigError, match="must be at most"):
        edited.with_dynamic(stored, {})
    config = edited.with_replayed(stored, {})
    assert config.integer("log.cleaner.min.compaction.lag.ms") == 0
    assert config.integer("message.max.bytes") == 9
    assert [setting.name for setting in config.unused] == ["log.cleaner.min.compaction.lag.ms"]


def test_settings_in_force_that_agree_only_together_are_all_used() -> None:
    edited = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "4"})
    stored = {
        "log.cleaner.min.compaction.lag.ms": "5",
        "log.cleaner.max.compaction.lag.ms": "6",
        "queued.max.request.bytes": "-7",
    }
    config = edited.with_replayed({}, stored)
    assert config.integer("log.cleaner.min.compaction.lag.ms") == 5
    assert config.integer("log.cleaner.max.compaction.lag.ms") == 6


def test_records_are_validated_by_listener() -> None:
    listeners = "PLAINTEXT://:9092,TRUSTED://:9093"
    protocols = "PLAINTEXT:PLAINTEXT,TRUSTED:PLAINTEXT"
    own = {"listeners": listeners, "listener.security.protocol.map": protocols}
    assert BrokerConfig.from_properties(own).walking_listeners == frozenset()
    everywhere = BrokerConfig.from_properties({**own, "ottla.records.validate": "records"})
    assert everywhere.walking_listeners == {"PLAINTEXT", "TRUSTED"}
    trusted = "listener.name.trusted.ottla.records.validate"
    but_one = BrokerConfig.from_properties({**own, "ottla.records.validate": "records", trusted: "header"})
    assert but_one.walking_listeners == {"PLAINTEXT"}
    assert but_one.unknown_keys == ()
    only_one = BrokerConfig.from_properties({**own, trusted: "records"})
    assert only_one.walking_listeners == {"TRUSTED"}
    changed = only_one.with_dynamic({"ottla.records.validate": "records"}, {})
    assert changed.walking_listeners == {"PLAINTEXT", "TRUSTED"}
    with pytest.raises(ConfigError, match=r"listener\.name\.trusted\.ottla\.records\.validate=all: must be"):
        BrokerConfig.from_properties({**own, trusted: "all"})
    nobody = "listener.name.other.ottla.records.validate"
    assert BrokerConfig.from_properties({**own, nobody: "records"}).unknown_keys == (nobody,)


def test_no_connections_at_all_cannot_be_set_while_the_broker_runs() -> None:
    with pytest.raises(ConfigError, match=r"max.connections=0: must be at least 1; nobody could connect"):
        validate_broker({"max.connections": "0"}, per_broker=False)
    config = BrokerConfig.from_properties({"max.connections": "9"})
    replayed = config.with_replayed({"max.connections": "0"}, {})
    assert replayed.integer("max.connections") == 9
    (unused,) = replayed.unused
    assert unused.reason.startswith("max.connections=0: must be at least 1")


def test_a_listener_has_its_own_settings_before_those_of_all() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "IN.SIDE://:9092,OUT://:9094",
            "listener.security.protocol.map": "IN.SIDE:SASL_PLAINTEXT,OUT:SASL_SSL",
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.in.side.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.in.side.scram-sha-512.sasl.jaas.config": 'x required username="u" password="p";',
            "listener.name.in.side.connections.max.reauth.ms": "5",
            "listener.name.in.side.scram-sha-512.connections.max.reauth.ms": "7",
            "listener.name.elsewhere.ssl.client.auth": "none",
            "sasl.jaas.config": "for nobody",
            "inter.broker.listener.name": "IN.SIDE",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        }
    )
    inside, outside = config.listener("IN.SIDE"), config.listener("OUT")
    assert (inside.protocol, outside.protocol) == ("SASL_PLAINTEXT", "SASL_SSL")
    assert inside.strings("sasl.enabled.mechanisms") == ("SCRAM-SHA-512", "OAUTHBEARER")
    assert outside.strings("sasl.enabled.mechanisms") == ("PLAIN",)
    assert inside.integer("connections.max.reauth.ms", "SCRAM-SHA-512") == 7
    assert inside.integer("connections.max.reauth.ms", "OAUTHBEARER") == 5
    assert outside.integer("connections.max.reauth.ms", "PLAIN") == 0
    # Who logs in needs no certificate unless it is said for this very listener. A line for all is for nobody.
    assert outside.client_auth == "none"
    assert outside.jaas("PLAIN") == ""
    assert config.to_brokers == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'x required username="u" password="p";',
    }
    assert config.unknown_keys == ("listener.name.elsewhere.ssl.client.auth",)
    # Where it could be shown, a password is not.
    entries = {entry.name: entry for entry in config.describe()}
    assert entries["listener.name.in.side.scram-sha-512.sasl.jaas.config"].value is None
    assert entries["listener.name.in.side.connections.max.reauth.ms"].value == "5"


def test_settings_of_a_listener_are_changed_for_one_broker_while_it_runs() -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    validate_broker({name: "/a.pem"}, per_broker=True)
    with pytest.raises(ConfigError, match="for one broker"):
        validate_broker({name: "/a.pem"}, per_broker=False)
    with pytest.raises(ConfigError, match="cannot be changed while the broker runs"):
        validate_broker({"listener.name.ssl.ssl.client.auth": "none"}, per_broker=True)
    config = BrokerConfig.from_properties({"listeners": "SSL://:9092", name: "/file.pem"})
    changed = config.with_dynamic({}, {name: "/changed.pem"})
    assert changed.listener("SSL").optional_string("ssl.keystore.location") == "/changed.pem"
    assert not changed.unused
