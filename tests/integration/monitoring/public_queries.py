"""What public Grafana dashboards for Apache Kafka ask Prometheus for, without the labels of their
surroundings: those that Strimzi ships for brokers, the quorum and kafka_exporter, and the rules of Strimzi's
alerts. Written down from the dashboards, what is asked twice once.
"""

from __future__ import annotations

_TOPIC = 'topic!=""'


def _traffic(*names: str) -> list[str]:
    return [f"sum(irate(kafka_server_brokertopicmetrics_{name}_total{{{_TOPIC}}}[5m]))" for name in names]


def _sums(prefix: str, *names: str) -> list[str]:
    return [f"sum({prefix}{name})" for name in names]


QUERIES = [
    # Brokers.
    "count(kafka_server_replicamanager_leadercount)",
    *_sums("kafka_server_replicamanager_", "partitioncount", "underreplicatedpartitions"),
    *_sums("kafka_controller_kafkacontroller_", "activecontrollercount", "offlinepartitionscount"),
    "sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))",
    *_sums("kafka_cluster_partition_", "atminisr", "underminisr"),
    "sum(process_open_fds) by (instance)",
    *_traffic("bytesin", "bytesout", "messagesin", "totalproducerequests", "failedproducerequests"),
    *_traffic("totalfetchrequests", "failedfetchrequests"),
    "sum(kafka_network_socketserver_networkprocessoravgidle_percent * 100) by (instance)",
    "sum(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent * 100) by (instance)",
    "sum(irate(kafka_server_kafkaserver_linux_disk_write_bytes[5m])) by (instance)",
    "sum(irate(kafka_server_kafkaserver_linux_disk_read_bytes[5m])) by (instance)",
    "sum(kafka_server_socket_server_metrics_connection_count) by (instance, listener)",
    "kafka_log_log_size",
    # The quorum.
    *_sums("kafka_server_raftmetrics_", "append_records_rate", "fetch_records_rate", "commit_latency_avg"),
    "max(kafka_server_raftmetrics_current_state) by (instance, current_state)",
    *_sums("kafka_server_raftmetrics_", "current_leader", "current_vote", "current_epoch"),
    *_sums("kafka_server_raftmetrics_", "high_watermark", "log_end_offset"),
    "sum(irate(kafka_server_raftchannelmetrics_incoming_byte_total[5m])) by (instance)",
    "sum(irate(kafka_server_raftchannelmetrics_outgoing_byte_total[5m])) by (instance)",
    "sum(irate(kafka_server_raftchannelmetrics_request_total[5m])) by (instance)",
    "sum(irate(kafka_server_raftchannelmetrics_response_total[5m])) by (instance)",
    # Topics and groups.
    "count(kafka_topic_partitions)",
    *_sums("kafka_topic_", "partitions", "partition_replicas", "partition_in_sync_replica"),
    "sum(kafka_topic_partition_under_replicated_partition)",
    "sum(kafka_topic_partition_leader_is_preferred < bool 1)",
    "sum(rate(kafka_topic_partition_current_offset[5m])) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset[5m]) / 300) by (consumergroup, topic)",
    "sum(kafka_consumergroup_lag) by (consumergroup, topic)",
    "sum(kafka_consumergroup_lag) by (consumergroup, partition, topic)",
    "sum(kafka_consumergroup_current_offset) by (consumergroup, partition, topic)",
    "sum(kafka_topic_partition_current_offset) by (partition, topic)",
    "sum(kafka_topic_partition_oldest_offset) by (partition, topic)",
    # Alerts, each without its threshold.
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_log_logmanager_offlinelogdirectorycount",
]
"""Left out are the JVM's memory, collections and threads (8), and what Kubernetes tells of containers and
volumes (9)."""
