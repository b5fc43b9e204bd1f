"""A few faults of each kind; `make soak` has a hundred."""

from __future__ import annotations

import pytest
from tests.integration.cluster.faults import run_faults

from ottla.testing import BrokerCluster


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_acknowledged_survives(ottla_cluster: BrokerCluster) -> None:
    print(run_faults(ottla_cluster, ["kill_leader", "pause_leader", "kill_controller", "stop_any"]))
