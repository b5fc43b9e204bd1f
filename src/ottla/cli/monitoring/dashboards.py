"""Dashboards for Grafana: rows of panels, each a question to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_WIDTH = 24
_HEIGHT = 8
_ROW_HEIGHT = 1


class Panel(NamedTuple):
    title: str
    expr: str
    unit: str = "short"
    legend: str = ""
    is_number: bool = False


class Row(NamedTuple):
    title: str
    panels: Sequence[Panel]


_REQUESTS = "kafka_network_requestmetrics"
_TRAFFIC = "kafka_server_brokertopicmetrics"
_OF = '{job="$job"}'

CLUSTER = (
    Row(
        "Health",
        (
            Panel("Brokers", f"max(kafka_brokers{_OF})", is_number=True),
            Panel(
                "Active controllers",
                f"sum(kafka_controller_kafkacontroller_activecontrollercount{_OF})",
                is_number=True,
            ),
            Panel(
                "Partitions without a leader",
                f"max(kafka_controller_kafkacontroller_offlinepartitionscount{_OF})",
                is_number=True,
            ),
            Panel(
                "Partitions with replicas that lag",
                f"sum(kafka_server_replicamanager_underreplicatedpartitions{_OF})",
                is_number=True,
            ),
        ),
    ),
    Row(
        "Traffic",
        (
            Panel(
                "Records in by topic",
                f'topk(10, sum by (topic) (rate({_TRAFFIC}_messagesin_total{{job="$job",topic!=""}}[5m])))',
                "cps",
                "{{topic}}",
            ),
            Panel(
                "Bytes in by topic",
                f'topk(10, sum by (topic) (rate({_TRAFFIC}_bytesin_total{{job="$job",topic!=""}}[5m])))',
                "Bps",
                "{{topic}}",
            ),
            Panel(
                "Bytes out by topic",
                f'topk(10, sum by (topic) (rate({_TRAFFIC}_bytesout_total{{job="$job",topic!=""}}[5m])))',
                "Bps",
                "{{topic}}",
            ),
        ),
    ),
    Row(
        "Requests",
        (
            Panel(
                "Requests by API",
                f"topk(10, sum by (request) (rate({_REQUESTS}_requests_total{_OF}[5m])))",
                "reqps",
                "{{request}}",
            ),
            Panel(
                "Errors",
                f"sum by (request, error) (rate({_REQUESTS}_errors_total{_OF}[5m]))",
                "reqps",
                "{{request}} {{error}}",
            ),
            Panel(
                "Time to the answer, p99",
                f'max by (request) ({_REQUESTS}_totaltimems{{job="$job",quantile="0.99"}})',
                "ms",
                "{{request}}",
            ),
        ),
    ),
    Row(
        "Brokers",
        (
            Panel(
                "Idle share of the event loop",
                f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{_OF}",
                "percentunit",
                "{{instance}}",
            ),
            Panel("CPU", f"rate(process_cpu_seconds_total{_OF}[5m])", "percentunit", "{{instance}}"),
            Panel("Memory", f"process_resident_memory_bytes{_OF}", "bytes", "{{instance}}"),
            Panel("Connections", f"ottla_connections{_OF}", "short", "{{instance}}"),
        ),
    ),
    Row(
        "Replication and metadata",
        (
            Panel(
                "Records that the slowest follower lacks",
                f"max by (instance) (kafka_server_replicafetchermanager_maxlag{_OF})",
                "short",
                "{{instance}}",
            ),
            Panel(
                "Replicas out of sync and back",
                f"sum(increase(kafka_server_replicamanager_isrshrinks_total{_OF}[5m]))"
                f" + sum(increase(kafka_server_replicamanager_isrexpands_total{_OF}[5m]))",
            ),
            Panel(
                "Time to commit a change of metadata",
                f"max(kafka_server_raftmetrics_commit_latency_avg{_OF})",
                "ms",
            ),
        ),
    ),
)
GROUPS = (
    Row(
        "Groups",
        (
            Panel(
                "Records still to read",
                f"sum by (consumergroup, topic) (kafka_consumergroup_lag{_OF})",
                "short",
                "{{consumergroup}} {{topic}}",
            ),
            Panel(
                "Records read per second",
                f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset{_OF}[5m]))",
                "cps",
                "{{consumergroup}} {{topic}}",
            ),
            Panel("Members", f"kafka_consumergroup_members{_OF}", "short", "{{consumergroup}}"),
        ),
    ),
    Row(
        "Topics",
        (
            Panel("Bytes", f"topk(10, sum by (topic) (kafka_log_log_size{_OF}))", "bytes", "{{topic}}"),
            Panel(
                "Records",
                f"topk(10, sum by (topic) (kafka_topic_partition_current_offset{_OF} "
                f"- kafka_topic_partition_oldest_offset{_OF}))",
                "short",
                "{{topic}}",
            ),
            Panel(
                "Held back by open transactions",
                f"sum by (topic) (kafka_cluster_partition_laststableoffsetlag{_OF})",
                "short",
                "{{topic}}",
            ),
        ),
    ),
)
DASHBOARDS = {
    "ottla-cluster": ("Ottla: cluster", CLUSTER),
    "ottla-groups": ("Ottla: groups and topics", GROUPS),
}


def dashboard(uid: str, title: str, rows: Iterable[Row], job: str) -> dict[str, Any]:
    """As Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": _ROW_HEIGHT},
                "panels": [],
            }
        )
        width = _WIDTH // len(row.panels)
        for position, panel in enumerate(row.panels):
            place = {"x": position * width, "y": top + _ROW_HEIGHT, "w": width, "h": _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        top += _ROW_HEIGHT + _HEIGHT
    return {
        "uid": uid,
        "title": title,
        "tags": ["ottla", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "job",
                    "type": "textbox",
                    "query": job,
                    "label": "Job",
                    "current": {"text": job, "value": job},
                },
            ]
        },
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": panel.expr, "legendFormat": panel.legend}],
    }
