"""All operations of the API, in the order of its document."""

from __future__ import annotations

from typing import Any

from ottla.console.api import access, groups, overview, records, topics, transactions
from ottla.console.endpoints import Endpoint

FAMILIES: dict[str, tuple[Endpoint[Any], ...]] = {
    "Cluster": overview.ENDPOINTS,
    "Topics": topics.ENDPOINTS,
    "Records": records.ENDPOINTS,
    "Groups": groups.ENDPOINTS,
    "Transactions": transactions.ENDPOINTS,
    "Access": access.ENDPOINTS,
}
