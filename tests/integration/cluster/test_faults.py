"""A few faults; `make soak` has a hundred."""

from __future__ import annotations

import pytest
from tests.integration.cluster.faults import run_faults
from tests.integration.cluster.workload import create_topics

from ottla.testing import BrokerCluster


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_acknowledged_survives() -> None:
    with BrokerCluster(relayed=False) as cluster:
        create_topics(cluster.bootstrap_servers)
        run_faults(
            cluster, ["kill the leader", "pause the leader", "kill the controller", "kill two in turn"]
        )
