"""Settings that contradict each other, or that another version left: refused when new, followed when old."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla.config import BrokerConfig, LogConfig, resolve_topic
from ottla.metadata.image import ResourceType
from ottla.metadata.records import ConfigRecord, encode_record
from ottla.raft.metadata_log import open_metadata_log
from ottla.records.records import Record, encode_batch
from ottla.runtime import real_runtime
from ottla.testing import InProcessBroker

MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


def admin_of(broker: InProcessBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: InProcessBroker, name: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = admin_of(broker)
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(20)


def alter(broker: InProcessBroker, kind: ConfigResource.Type, name: str, key: str, value: str) -> None:
    resource = ConfigResource(kind, name)
    resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin = admin_of(broker)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def described(broker: InProcessBroker, topic: str) -> dict[str, ConfigEntry]:
    admin = admin_of(broker)
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    entries: dict[str, ConfigEntry] = future.result(20)
    return entries


def refused(error: pytest.ExceptionInfo[KafkaException]) -> str:
    assert error.value.args[0].code() == KafkaError.INVALID_CONFIG
    text: str = error.value.args[0].str()
    return text


def add_to_metadata(data_dir: str, records: list[ConfigRecord]) -> None:
    """What a broker of another version would have left in the directory."""

    async def append() -> None:
        runtime = real_runtime()
        config = BrokerConfig.from_properties({"node.id": "1", "log.dirs": data_dir})
        log = open_metadata_log(runtime, config, clean=True)
        values = [Record(None, encode_record(record), 1) for record in records]
        log.append_as_follower(
            memoryview(encode_batch(values, base_offset=log.next_offset, leader_epoch=log.latest_epoch))
        )
        log.close()
        await runtime.close()

    asyncio.run(append())


def test_an_override_that_contradicts_the_brokers_default_is_refused(tmp_path: Path) -> None:
    settings = {"log.cleaner.max.compaction.lag.ms": "500"}
    with InProcessBroker(settings, data_dir=str(tmp_path)) as broker:
        with pytest.raises(KafkaException) as error:
            create(broker, "t", min_compaction_lag_ms="1000")
        assert "min.compaction.lag.ms=1000: must be at most max.compaction.lag.ms=500" in refused(error)
        create(broker, "t", min_compaction_lag_ms="1000", max_compaction_lag_ms="2000")
        create(broker, "plain")
        with pytest.raises(KafkaException) as error:
            alter(broker, ConfigResource.Type.TOPIC, "plain", MIN_LAG, "501")
        assert "set both on the topic" in refused(error)
        broker.stop()
        broker.start()
        assert described(broker, "t")[MIN_LAG].value == "1000"


def test_a_default_that_contradicts_what_topics_have_leaves_them_alone(tmp_path: Path) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        create(broker, "t", min_compaction_lag_ms="1000")
        alter(broker, ConfigResource.Type.BROKER, "1", "log.cleaner.max.compaction.lag.ms", "500")
        for run in range(2):
            entries = described(broker, "t")
            assert (entries[MIN_LAG].value, entries[MAX_LAG].value) == ("1000", "500")
            create(broker, f"created-in-run-{run}")
            broker.stop()
            broker.start()


def test_settings_that_another_version_left_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        create(broker, "t", retention_ms="5000")
        broker.stop()
        add_to_metadata(
            broker.data_dir,
            [
                ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
                for name, value in (
                    ("tier.storage.enable", "true"),
                    ("throttled.somewhere", "0:1"),
                    ("segment.ms", "soon"),
                )
            ]
            + [
                ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=name, value=value)
                for name, value in (("tier.cache", "9"), ("message.max.bytes", "many"))
            ],
        )
        for _ in range(2):
            caplog.clear()
            broker.start()
            entries = described(broker, "t")
            assert entries["retention.ms"].value == "5000"
            assert {"tier.storage.enable", "throttled.somewhere"} <= entries.keys()
            alter(broker, ConfigResource.Type.TOPIC, "t", "flush.ms", "7000")
            told = [record.message for record in caplog.records if "tier.storage.enable" in record.message]
            assert len(told) == 1
            assert "topic t" in told[0]
            assert any("message.max.bytes=many" in record.message for record in caplog.records)
            broker.stop()
        broker.start()


def test_a_change_costs_what_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[Mapping[str, str]] = []

    def counting(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
        resolved.append(overrides)
        return resolve_topic(broker, overrides)

    with InProcessBroker(data_dir=str(tmp_path)) as broker:
        for number in range(20):
            create(broker, f"t{number}", retention_ms="5000")
        monkeypatch.setattr("ottla.replication.manager.resolve_topic", counting)
        alter(broker, ConfigResource.Type.TOPIC, "t7", "retention.ms", "6000")
        assert resolved == [{"retention.ms": "6000"}]
