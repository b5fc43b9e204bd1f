"""Rules by which Prometheus tells that something is wrong with a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

LAG_MAX = 10_000
"""Records. What is much depends on the topic: the rule is there to be changed."""


class Alert(NamedTuple):
    name: str
    expr: str
    wait: str
    """So long it has to be true. Short enough to be told in time, long enough for a restart."""
    severity: str
    summary: str
    remedy: str


ALERTS = (
    Alert(
        "OttlaBrokerDown",
        'up{job="$job"} == 0',
        "1m",
        "critical",
        "Metrics of {{ $labels.instance }} cannot be read.",
        "See whether the broker runs, and what its log says.",
    ),
    Alert(
        "OttlaNoActiveController",
        'sum(kafka_controller_kafkacontroller_activecontrollercount{job="$job"}) != 1',
        "1m",
        "critical",
        "There are {{ $value }} active controllers; there should be one.",
        "Topics cannot be changed and leaders not elected. A majority of the controllers has to run and to "
        "reach each other.",
    ),
    Alert(
        "OttlaOfflinePartitions",
        'max(kafka_controller_kafkacontroller_offlinepartitionscount{job="$job"}) > 0',
        "1m",
        "critical",
        "{{ $value }} partitions have no leader: nobody can write to them or read from them.",
        "Start the brokers that have their replicas; ottla topics --describe --unavailable-partitions names "
        "them.",
    ),
    Alert(
        "OttlaUnderMinIsr",
        'sum by (instance) (kafka_server_replicamanager_underminisrpartitioncount{job="$job"}) > 0',
        "1m",
        "critical",
        "{{ $value }} partitions led by {{ $labels.instance }} have fewer replicas in sync than "
        "min.insync.replicas: producers with acks=all are refused.",
        "Start the brokers that have the other replicas; ottla topics --describe --under-min-isr-partitions "
        "names them.",
    ),
    Alert(
        "OttlaUnderReplicatedPartitions",
        'sum by (instance) (kafka_server_replicamanager_underreplicatedpartitions{job="$job"}) > 0',
        "5m",
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} have replicas that are not in sync.",
        "A broker is down or cannot keep up; ottla topics --describe --under-replicated-partitions names "
        "them.",
    ),
    Alert(
        "OttlaBrokerFenced",
        'max(kafka_controller_kafkacontroller_fencedbrokercount{job="$job"}) > 0',
        "5m",
        "warning",
        "The controller does not hear of {{ $value }} brokers.",
        "Start them, or unregister those that are gone for good (ottla cluster unregister).",
    ),
    Alert(
        "OttlaDamagedRecords",
        'ottla_partition_damaged_batches{job="$job"} > 0',
        "0s",
        "critical",
        "{{ $value }} record batches of {{ $labels.topic }}-{{ $labels.partition }} on "
        "{{ $labels.instance }} are damaged.",
        "The disk may be failing. The broker's log names file and offset; other replicas have the records.",
    ),
    Alert(
        "OttlaGroupLags",
        f'sum by (consumergroup, topic) (kafka_consumergroup_lag{{job="$job"}}) > {LAG_MAX}',
        "10m",
        "warning",
        "Group {{ $labels.consumergroup }} has {{ $value }} records of {{ $labels.topic }} still to read.",
        "See whether its members run and keep up: ottla consumer-groups --describe --group.",
    ),
    Alert(
        "OttlaTransactionOpen",
        'max by (topic, partition) (kafka_cluster_partition_laststableoffsetlag{job="$job"}) > 0',
        "15m",
        "warning",
        "Readers of committed records of {{ $labels.topic }}-{{ $labels.partition }} lack {{ $value }} "
        "records: a transaction is open.",
        "Find it with ottla transactions find-hanging, and abort it if its producer is gone.",
    ),
)


def rules(job: str) -> str:
    """A file of rules for brokers that Prometheus scrapes under this name."""
    return "\n".join(_lines(job)) + "\n"


def _lines(job: str) -> Iterator[str]:
    # As PromQL quotes texts, which is as JSON does.
    quoted = json.dumps(job, ensure_ascii=False)[1:-1]
    yield "groups:"
    yield "  - name: ottla"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {json.dumps(alert.expr.replace('$job', quoted))}"
        yield f"        for: {alert.wait}"
        yield "        labels:"
        yield f"          severity: {alert.severity}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(alert.summary)}"
        yield f"          description: {json.dumps(alert.remedy)}"
