"""Brokers for tests: one inside the test process, a real one that can be killed, or a cluster of those.

With pytest, ask for the fixtures `ottla_broker` (one per test), `ottla_broker_session` (one for all) or
`ottla_cluster` (three brokers that replicate).
Anywhere else, `with ottla.testing.broker() as b:` and connect to `b.bootstrap_servers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.runtime.net import free_ports
    from ottla.testing.cluster import BrokerCluster, ClusterBroker
    from ottla.testing.in_process import InProcessBroker, broker
    from ottla.testing.process import BrokerProcess

__all__ = ["BrokerCluster", "BrokerProcess", "ClusterBroker", "InProcessBroker", "broker", "free_ports"]

_MODULES = {
    "BrokerCluster": "ottla.testing.cluster",
    "ClusterBroker": "ottla.testing.cluster",
    "BrokerProcess": "ottla.testing.process",
    "InProcessBroker": "ottla.testing.in_process",
    "broker": "ottla.testing.in_process",
    "free_ports": "ottla.runtime.net",
}


def __getattr__(name: str) -> Any:
    """Late, because pytest imports this package through the plugin in projects that use no broker too."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
