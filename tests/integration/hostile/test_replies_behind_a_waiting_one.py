"""Requests whose answers cannot leave, because an earlier one of the connection waits."""

from __future__ import annotations

import time

import pytest
from bystander import MIB, Bystander, memory_bytes
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from raw_client import RawConnection, join_group_frame, request_frame, wait_for_coordinator

from ottla.testing import BrokerProcess

DESCRIBE_CONFIGS = 32
BROKER = 4
REQUESTS = 12_000
MEMORY_BYTES_MAX = 100 * MIB
"""Sixteen mebibytes of replies and as much unsent for one connection; the rest is for the broker itself."""


def describe_configs() -> bytes:
    """Some dozens of bytes that are answered with tens of thousands."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    return request_frame(DESCRIBE_CONFIGS, 4, request)


@pytest.mark.parametrize("behind", [True, False], ids=["behind-a-waiting-reply", "read-by-nobody"])
def test_replies_that_cannot_leave_are_bounded(behind: bool) -> None:
    with (
        BrokerProcess({"group.initial.rebalance.delay.ms": 20_000}) as broker,
        Bystander(broker.bootstrap_servers) as bystander,
        RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker,
    ):
        with RawConnection(broker.bootstrap_servers) as first:
            # What the broker keeps once it has been asked is not the attacker's doing.
            first.send(describe_configs())
            answer_bytes = len(first.receive())
        assert answer_bytes * REQUESTS > 2 * MEMORY_BYTES_MAX
        before = memory_bytes(broker.pid)
        if behind:
            wait_for_coordinator(attacker, "waiting")
            attacker.send(join_group_frame("waiting"))
        attacker.socket.settimeout(3)
        requests = memoryview(describe_configs() * REQUESTS)
        try:
            while requests:
                requests = requests[attacker.socket.send(requests) :]
        except TimeoutError:
            pass
        growth = 0
        observed_until = time.monotonic() + 1.5
        while time.monotonic() < observed_until:
            bystander.assert_was_served()
            growth = max(growth, memory_bytes(broker.pid) - before)
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB for answers of {answer_bytes} bytes"
