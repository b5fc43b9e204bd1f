"""Three brokers through a hundred faults, one after the other, while producers write.

OTTLA_SOAK_FAULTS=100 make soak PYTEST_ARGS=tests/soak/test_hundred_faults.py
"""

from __future__ import annotations

import os

import pytest
from tests.integration.cluster.faults import run_faults

from ottla.testing import BrokerCluster

FAULTS = int(os.environ.get("OTTLA_SOAK_FAULTS", "100"))
SEED = os.environ.get("OTTLA_SOAK_SEED", "1")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300 + 60 * FAULTS)]


def test_a_hundred_faults(ottla_cluster: BrokerCluster) -> None:
    print(run_faults(ottla_cluster, [None] * FAULTS, f"faults/{SEED}"))
