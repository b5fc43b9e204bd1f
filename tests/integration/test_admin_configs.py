"""Settings through the asynchronous admin client, as Ottla's own parts will use it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.admin.configs import (
    BROKER,
    GROUP,
    TOPIC,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from ottla.client.cluster import ClusterClient
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import InProcessBroker
from ottla.wire.errors import ErrorCode, KafkaError


def test_settings_are_described_and_changed(ottla_broker_session: InProcessBroker) -> None:
    async def work() -> None:
        async with ClusterClient(AsyncioNetwork(), ottla_broker_session.bootstrap_servers) as cluster:
            await alter_configs(cluster, GROUP, "readers", {"consumer.session.timeout.ms": "50000"})
            assert "readers" in await list_config_resources(cluster, GROUP)
            described = await describe_configs(cluster, GROUP, ["readers"], synonyms=True)
            found = {setting.name: setting for setting in described["readers"]}
            session = found["consumer.session.timeout.ms"]
            assert (session.value, session.is_default) == ("50000", False)
            assert session.synonyms[0].value == "50000"
            await alter_configs(cluster, GROUP, "readers", {}, ["consumer.session.timeout.ms"])
            assert "readers" not in await list_config_resources(cluster, GROUP)
            # What is asked of a broker by its id is asked of that broker.
            own = await describe_configs(cluster, BROKER, ["1"], node=1)
            assert any(setting.name == "log.dirs" for setting in own["1"])
            assert await describe_configs(cluster, TOPIC, []) == {}

    asyncio.run(work())


def test_refusals_name_what_was_asked_for(ottla_broker_session: InProcessBroker) -> None:
    async def work() -> None:
        async with ClusterClient(
            AsyncioNetwork(), ottla_broker_session.bootstrap_servers, {"default.api.timeout.ms": "500"}
        ) as cluster:
            with pytest.raises(KafkaError, match="nowhere") as unknown:
                await describe_configs(cluster, TOPIC, ["nowhere"])
            assert unknown.value.code == ErrorCode.unknown_topic_or_partition
            with pytest.raises(KafkaError, match=r"consumer\.session\.timeout\.ms") as refused:
                await alter_configs(cluster, GROUP, "readers", {"consumer.session.timeout.ms": "1"})
            assert refused.value.code == ErrorCode.invalid_config
            with pytest.raises(KafkaError, match="broker 9 is not part of the cluster"):
                await describe_configs(cluster, BROKER, ["9"], node=9)

    asyncio.run(work())
