"""Settings of the brokers: short enough that no test waits for an interval, and kept by two busy cores."""

from __future__ import annotations

from group_members.consumers import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS

BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": 50,
    "group.min.session.timeout.ms": 500,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.session.timeout.ms": SESSION_TIMEOUT_MS,
}
