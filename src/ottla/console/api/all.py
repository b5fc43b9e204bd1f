"""All operations of the API, in the order of its document."""

from __future__ import annotations

from typing import Any

from ottla.console.api import (
    access,
    connectors,
    groups,
    history,
    overview,
    pipelines,
    placement,
    records,
    topics,
    transactions,
)
from ottla.console.endpoints import Endpoint

FAMILIES: dict[str, tuple[Endpoint[Any], ...]] = {
    "Cluster": (*overview.ENDPOINTS, history.cluster_history, *placement.ENDPOINTS),
    "Topics": (*topics.ENDPOINTS, history.topic_history),
    "Records": records.ENDPOINTS,
    "Groups": (*groups.ENDPOINTS, history.group_history),
    "Transactions": transactions.ENDPOINTS,
    "Connectors": connectors.ENDPOINTS,
    "Pipelines": pipelines.ENDPOINTS,
    "Access": access.ENDPOINTS,
}
