"""The first client of a new broker, which makes the topics that coordinators keep their state in."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import BrokerProcess


@pytest.mark.timeout(90)
def test_a_group_can_be_asked_for_as_soon_as_its_coordinator_is_found() -> None:
    for _ in range(4):
        with BrokerProcess() as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            (described,) = admin.describe_consumer_groups(["nobody"], request_timeout=20).values()
            assert described.result(20).group_id == "nobody"
