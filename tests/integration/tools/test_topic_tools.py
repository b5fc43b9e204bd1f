"""Tools for topics, settings and offsets against a live broker."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import InProcessBroker


def test_topics_are_created_listed_described_grown_and_deleted(on: Any) -> None:
    created = on(
        "topics", "--create", "--topic", "grow", "--partitions", "2", "--config", "retention.ms=5000"
    )
    assert (created.status, created.out) == (0, "Created topic grow.\n")
    assert "grow" in on("topics", "--list").lines
    assert on("topics", "--list", "--topic", "gr.w").out == "grow\n"

    described = on("topics", "--describe", "--topic", "grow")
    assert re.fullmatch(
        r"Topic: grow\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 1"
        r"\tConfigs: min.insync.replicas=1,retention.ms=5000",
        described.lines[0],
    )
    assert described.lines[1] == (
        "\tTopic: grow\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    )
    assert len(described.lines) == 3
    (data,) = on("topics", "--describe", "--topic", "grow", "--json").data
    assert data["configs"] == {"min.insync.replicas": "1", "retention.ms": "5000"}
    by_id = on("topics", "--describe", "--topic-id", data["topicId"])
    assert by_id.out == described.out

    assert on("topics", "--alter", "--topic", "grow", "--partitions", "3").status == 0
    assert len(on("topics", "--describe", "--topic", "grow").lines) == 4
    shrunk = on("topics", "--alter", "--topic", "grow", "--partitions", "1")
    assert shrunk.status == 1
    assert shrunk.err.count("\n") == 1

    assert on("topics", "--delete", "--topic", "grow").status == 0
    assert "grow" not in on("topics", "--list").lines


def test_describe_filters(on: Any, topic: str) -> None:
    assert on("topics", "--describe", "--topic", topic, "--under-replicated-partitions").out == ""
    assert on("topics", "--describe", "--topic", topic, "--unavailable-partitions").out == ""
    at_minimum = on("topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    assert at_minimum.out.startswith(f"\tTopic: {topic}\tPartition: 0")
    # Of the whole cluster, which has one from its first start: that counts, as with Apache Kafka's own tool.
    overrides = on("topics", "--describe", "--topic", topic, "--topics-with-overrides")
    assert overrides.lines[0].endswith("\tConfigs: min.insync.replicas=1") and len(overrides.lines) == 1


def test_topics_that_exist_or_do_not(on: Any, topic: str) -> None:
    again = on("topics", "--create", "--topic", topic)
    assert again.status == 1
    assert again.err == (
        f"ottla topics: Error while executing topic command : Topic '{topic}' already exists.\n"
    )
    assert on("topics", "--create", "--topic", topic, "--if-not-exists").status == 0
    missing = on("topics", "--describe", "--topic", "no-such")
    assert missing.status == 1
    assert "Topic 'no-such' does not exist as expected" in missing.err
    assert on("topics", "--delete", "--topic", "no-such", "--if-exists").status == 0


def test_names_that_may_collide_are_warned_about(on: Any) -> None:
    assert on("topics", "--create", "--topic", "may.collide").out.startswith("WARNING: Due to limitations")


def test_replicas_can_be_assigned(on: Any) -> None:
    assert on("topics", "--create", "--topic", "assigned", "--replica-assignment", "1,1,1").status == 0
    assert len(on("topics", "--describe", "--topic", "assigned").lines) == 4
    refused = on("topics", "--create", "--topic", "twice", "--replica-assignment", "1:1")
    assert "names a broker twice" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "exactly one action"),
        (("--list", "--describe"), "exactly one action"),
        (("--create",), "--create needs --topic"),
        (("--alter", "--topic", "t"), "--alter needs --partitions"),
        (("--list", "--if-exists"), "--if-exists cannot be used with --list"),
        (("--create", "--topic", "t", "--partitions", "many"), "invalid int value"),
        (("--list", "--nonsense"), "there is no option --nonsense"),
        (("--list", "--command-config", "missing.properties"), "missing.properties: No such file"),
    ],
)
def test_bad_arguments_get_one_line_and_status_1(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("topics", *arguments)
    assert refused.status == 1
    assert refused.out == ""
    assert message in refused.err
    assert refused.err.count("\n") == 1


def test_a_malformed_properties_file_is_named(on: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.properties"
    broken.write_text("a=1\nb=\\u00zz\n")
    refused = on("topics", "--list", "--command-config", str(broken))
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert f"{broken}: line 2" in refused.err


def test_an_unreachable_broker_is_named_within_its_time_out(tool: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    settings = tmp_path / "client.properties"
    settings.write_text("socket.connection.setup.timeout.ms=300\n")
    for name, extra in (
        ("topics", ["--list"]),
        ("console-producer", ["--topic", "t"]),
        ("console-consumer", ["--topic", "t"]),
    ):
        began = time.monotonic()
        address = f"127.0.0.1:{port}"
        refused = tool(name, *extra, "--bootstrap-server", address, "--command-config", str(settings))
        assert refused.status == 1
        assert f"cannot reach 127.0.0.1:{port}: Connection refused" in refused.err
        assert refused.err.count("\n") == 1
        assert time.monotonic() - began < 5


def test_a_listener_that_hangs_up_is_told_of_with_what_may_be_wrong(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.cluster.admin._TELL_AFTER_S", 0.3)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    closed = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_alice="secret";',
    }
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=1000\n")
    with InProcessBroker(closed) as broker:
        given = ["--list", "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(settings)]
        told = tool("topics", *given)
    assert told.status == 1
    assert "does security.protocol=PLAINTEXT, the default, fit that listener?" in told.err


def test_a_dead_broker_is_told_of_while_waiting_for_it(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.cluster.admin._TELL_AFTER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = tmp_path / "client.properties"
        settings.write_text("socket.connection.setup.timeout.ms=1000\n")
        given = ["--list", "--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(settings)]
        unanswered = tool("topics", *given)
    refused = tool("topics", *given)
    assert f"ottla topics: 127.0.0.1:{port} has not answered yet" in unanswered.err.splitlines()[0]
    assert (
        f"ottla topics: cannot reach 127.0.0.1:{port}: Connection refused; trying"
        in refused.err.splitlines()[0]
    )
    assert "more than half of the voters" in unanswered.err.splitlines()[0]
    for outcome in (unanswered, refused):
        assert outcome.status == 1
        assert "(tried for " in outcome.err.splitlines()[-1]


def test_what_is_no_broker_is_told(tool: Any, tmp_path: Path) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        refused = tool("topics", "--list", "--bootstrap-server", f"127.0.0.1:{port}")
        thread.join()
    assert refused.status == 1
    assert f"127.0.0.1:{port}: does not answer as a Kafka broker would" in refused.err


def test_zookeeper_is_gone_and_the_right_command_line_is_shown(tool: Any) -> None:
    refused = tool("topics", "--zookeeper", "zoo:2181", "--create", "--topic", "t")
    assert refused.status == 1
    assert "zookeeper is not a recognized option" in refused.err
    assert "ottla topics --bootstrap-server zoo:9092 --create --topic t\n" in refused.err


def test_configs_of_topics(on: Any, topic: str) -> None:
    changed = on(
        "configs", "--alter", "--topic", topic, "--add-config",
        "cleanup.policy=[compact,delete],retention.ms=1000",
    )  # fmt: skip
    assert changed.out == f"Completed updating config for topic {topic}.\n"
    described = on("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert described.lines[0] == f"Dynamic configs for topic {topic} are:"
    assert described.lines[1].startswith(
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
    )
    assert len(described.lines) == 3
    assert on("configs", "--alter", "--topic", topic, "--delete-config", "cleanup.policy").status == 0
    (data,) = on("configs", "--describe", "--topic", topic, "--json").data
    assert data["configs"] == {"retention.ms": "1000"}
    assert len(on("configs", "--describe", "--topic", topic, "--all").lines) > 20
    refused = on("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=soon")
    assert (refused.status, refused.err.count("\n")) == (1, 1)


def test_configs_of_brokers(on: Any) -> None:
    assert on("configs", "--describe", "--broker", "1", "--all").lines[0] == "All configs for broker 1 are:"
    changed = on("configs", "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    assert changed.out == "Completed updating default config for brokers in the cluster.\n"
    described = on("configs", "--describe", "--entity-type", "brokers")
    assert "Default configs for brokers in the cluster are:" in described.lines
    assert "  log.cleaner.threads=2 sensitive=false" in described.out
    assert on("configs", "--describe", "--broker", "9").out == (
        "The broker '9' doesn't exist and doesn't have dynamic config.\n"
    )


def test_offsets(on: Any, topic: str) -> None:
    assert on("get-offsets", "--topic", topic).out == f"{topic}:0:10\n"
    assert on("get-offsets", "--topic", topic, "--time", "earliest").out == f"{topic}:0:0\n"
    assert on("get-offsets", "--topic-partitions", f"{topic}:0-1", "--json").data == [
        {"topic": topic, "partition": 0, "offset": 10}
    ]
    assert on("get-offsets", "--topic", topic, "--time", str(int(time.time() * 1000) + 100_000)).out == ""
    assert on("get-offsets", "--topic", "no-such").status == 1
    assert "--time yesterday" in on("get-offsets", "--time", "yesterday").err


def test_records_are_deleted(on: Any, topic: str, tmp_path: Path) -> None:
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1})
    )
    deleted = on("delete-records", "--offset-json-file", str(wanted))
    assert deleted.lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 4",
    ]
    assert on("get-offsets", "--topic", topic, "--time", "earliest").out == f"{topic}:0:4\n"
    wanted.write_text("{")
    assert "not JSON" in on("delete-records", "--offset-json-file", str(wanted)).err


def test_the_cluster(on: Any, broker: InProcessBroker) -> None:
    def ask(*arguments: str) -> Any:
        return on("cluster", *arguments)

    assert ask("cluster-id").out == f"Cluster ID: {broker.cluster_id}\n"
    head, row = ask("list-endpoints").lines
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert row.split() == ["1", "127.0.0.1", str(broker.port), "null", "unfenced", "broker"]


def test_api_versions(on: Any, broker: InProcessBroker) -> None:
    shown = on("broker-api-versions")
    assert shown.lines[0] == f"127.0.0.1:{broker.port} (id: 1 rack: null isFenced: false) -> ("
    assert "\tMetadata(3): 0 to 13 [usable: 13]," in shown.lines


def test_features_quorum_and_log_dirs(on: Any, tool: Any, broker: InProcessBroker, topic: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    features = tool("features", *server, "describe").lines
    assert [line.split()[1] for line in features] == [
        "eligible.leader.replicas.version",
        "group.version",
        "kraft.version",
        "metadata.version",
        "share.version",
        "transaction.version",
    ]
    status = tool("metadata-quorum", *server, "describe", "--status")
    assert status.lines[0] == f"ClusterId:              {broker.cluster_id}"
    assert "LeaderId:               1" in status.lines
    head, leader = tool("metadata-quorum", *server, "describe", "--replication").lines
    assert head.split()[0] == "NodeId"
    assert leader.split()[-1] == "Leader"
    assert tool("metadata-quorum", *server, "describe").status == 1

    first, second, directories = on("log-dirs", "--describe", "--topic-list", topic).lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    (held,) = json.loads(directories)["brokers"][0]["logDirs"][0]["partitions"]
    assert held["partition"] == f"{topic}-0"
    assert held["size"] > 0
    assert "do not exist" in on("log-dirs", "--describe", "--broker-list", "7").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--alter", "--ip", "nowhere", "--add-config", "connection_creation_rate=1"), "not a valid IP"),
        (("--alter", "--user", "a", "--add-config", "speed=1"), "Unexpected config names: speed"),
        (("--alter", "--user-defaults", "--add-config", "SCRAM-SHA-256=[password=b]"), "a user's own"),
        (
            ("--alter", "--group", "g", "--add-config", "consumer.session.timeout.ms=1"),
            "consumer.session.timeout.ms must be in the range",
        ),
        (
            ("--alter", "--client-metrics", "m", "--add-config", "interval.ms=1"),
            "interval.ms=1: must be between 100 and 3600000",
        ),
        (("--describe", "--topic", "t", "--user", "a"), "just users and clients can be combined"),
        (("--describe", "--entity-name", "a"), "need an --entity-type each"),
        (("--describe", "--entity-type", "things"), "Invalid entity type things"),
    ],
)
def test_settings_that_a_broker_does_not_have(on: Any, arguments: tuple[str, ...], message: str) -> None:
    refused = on("configs", *arguments)
    assert refused.status == 1
    assert message in refused.err
