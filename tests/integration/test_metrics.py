"""What Prometheus would see of a real broker: rot on its disk, compaction, clients; what the guide says."""

from __future__ import annotations

import logging
import os
import queue
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from prometheus_client.parser import text_string_to_metric_families

import ottla.testing
from ottla.cli.main import main
from ottla.server.metrics.declared import METRICS
from ottla.server.metrics.exporter_names import EXPORTER_METRICS
from ottla.server.metrics.kafka_names import KAFKA_METRICS
from ottla.server.metrics.visitors import HANDSHAKES_OF_ONE_MAX
from ottla.testing import BrokerProcess

GUIDE = Path(__file__).parents[2] / "docs/guides/running.md"
SETTINGS = {
    "ottla.metrics.listener": "127.0.0.1:0",
    "log.initial.task.delay.ms": "0",
    "ottla.scrub.interval.ms": "1",
    "ottla.scrub.bytes.per.second": "1000000000",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "group.initial.rebalance.delay.ms": "0",
}
SEGMENT_BYTES = 60_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(SETTINGS) as running:
        yield running


def url(broker: BrokerProcess) -> str:
    found: list[str] = re.findall(r"metrics are at (http://\S+/metrics)", broker.log)
    return found[-1]


def scrape(broker: BrokerProcess) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels."""
    with urlopen(url(broker), timeout=20) as reply:
        text = reply.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(broker: BrokerProcess, name: str, **labels: str) -> float:
    """0 for what is absent."""
    return scrape(broker).get((name, frozenset(labels.items())), 0.0)


def wait_until(condition: Callable[[], bool], broker: BrokerProcess, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.05)


def fill(broker: BrokerProcess, topic: str, partitions: int, records: int, **config: str) -> None:
    """Some segments in each partition."""
    settings = {"internal.segment.bytes": str(SEGMENT_BYTES), **config}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 5000})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(topic, b"%05d" % number * 40, b"key-%d" % (number % 10), partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_a_byte_that_rots_is_found_by_topic_and_partition(broker: BrokerProcess) -> None:
    fill(broker, "rotting", 2, 1000)
    labels = {"topic": "rotting", "partition": "1"}
    assert value(broker, "ottla_partition_log_end_offset", **labels) == 1000
    assert value(broker, "ottla_partition_high_watermark_offset", **labels) == 1000
    assert value(broker, "ottla_partition_log_segments", **labels) >= 3
    files = sorted(Path(broker.data_dir, "rotting-1").glob("*.log"))
    assert value(broker, "ottla_partition_log_bytes", **labels) == sum(path.stat().st_size for path in files)

    def passes() -> float:
        return value(broker, "ottla_scrub_passes_total")

    begun = passes()
    wait_until(lambda: passes() >= begun + 2, broker)
    assert value(broker, "ottla_scrub_damaged_batches_total") == 0
    assert value(broker, "ottla_partition_damaged_batches", **labels) == 0
    with open(files[0], "r+b") as file:
        file.seek(500)
        byte = file.read(1)[0]
        file.seek(500)
        file.write(bytes([byte ^ 0x10]))
    wait_until(lambda: value(broker, "ottla_partition_damaged_batches", **labels) == 1, broker)
    found = scrape(broker)
    damaged = [labels for name, labels in found if name == "ottla_partition_damaged_batches"]
    assert damaged == [frozenset(labels.items())], "and nowhere else"
    assert found["ottla_scrub_damaged_batches_total", frozenset()] == 1
    assert found["ottla_scrub_read_bytes_total", frozenset()] > 2 * SEGMENT_BYTES

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["rotting"])["rotting"].result(20)
    found = scrape(broker)
    assert not [labels for _, labels in found if ("topic", "rotting") in labels]
    fill(broker, "rotting", 2, 500)
    found = scrape(broker)
    assert found["ottla_partition_log_end_offset", frozenset(labels.items())] == 500
    assert not [name for name, _ in found if name == "ottla_partition_damaged_batches"], "it is another topic"
    assert found["ottla_scrub_damaged_batches_total", frozenset()] == 1


def test_compaction(broker: BrokerProcess) -> None:
    before = scrape(broker)
    fill(broker, "table", 1, 3000, **{"cleanup.policy": "compact"})
    rounds = "ottla_cleaner_rounds_total"
    wait_until(lambda: value(broker, rounds) > before[rounds, frozenset()], broker)
    wait_until(lambda: value(broker, "ottla_cleaner_running_rounds") == 0, broker)
    found = scrape(broker)
    assert found["ottla_cleaner_read_bytes_total", frozenset()] > SEGMENT_BYTES
    assert found["ottla_cleaner_written_bytes_total", frozenset()] > 0
    assert found["ottla_cleaner_round_seconds_total", frozenset()] > 0
    assert found["ottla_cleaner_failures_total", frozenset()] == 0
    now = time.time()
    assert now - 60 < found["ottla_cleaner_last_round_timestamp_seconds", frozenset()] <= now
    assert now - 60 < found["ottla_cleaner_last_check_timestamp_seconds", frozenset()] <= now


def test_clients_groups_and_transactions(broker: BrokerProcess) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    accepted = value(broker, "ottla_connections_accepted_total")
    fill(broker, "orders", 1, 10)
    producer = Producer({**servers, "transactional.id": "till"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    assert producer.flush(20) == 0
    consumer = Consumer({**servers, "group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(1, timeout=20)) == 1
    found = scrape(broker)
    orders = frozenset({"topic": "orders", "partition": "0"}.items())
    assert found["ottla_partition_last_stable_offset", orders] == 10
    assert found["ottla_partition_high_watermark_offset", orders] == 11
    assert found["ottla_transactional_ids", frozenset({"state": "Ongoing"}.items())] == 1
    assert found["ottla_groups", frozenset({"type": "classic", "state": "Stable"}.items())] == 1
    assert found["ottla_connections", frozenset()] >= 2
    assert found["ottla_connections_accepted_total", frozenset()] > accepted
    producer.commit_transaction(20)
    consumer.close()
    wait_until(
        lambda: (
            value(broker, "ottla_groups", type="classic", state="Empty") == 1
            and value(broker, "ottla_partition_last_stable_offset", topic="orders", partition="0") == 12
        ),
        broker,
    )


def test_traffic_under_the_names_of_kafka(broker: BrokerProcess) -> None:
    prefix = "kafka_server_brokertopicmetrics_"
    fill(broker, "traffic", 2, 1000)
    assert value(broker, f"{prefix}messagesin_total", topic="traffic") == 2000
    files = [path for index in (0, 1) for path in Path(broker.data_dir, f"traffic-{index}").glob("*.log")]
    assert value(broker, f"{prefix}bytesin_total", topic="traffic") == sum(
        each.stat().st_size for each in files
    )
    assert value(broker, f"{prefix}bytesout_total", topic="traffic") == 0
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": "lagging", "enable.auto.commit": False})
    consumer.assign([TopicPartition("traffic", index, 0) for index in (0, 1)])
    seen = 0
    while seen < 2000:
        seen += len(consumer.consume(500, timeout=20))
    consumer.commit(
        offsets=[TopicPartition("traffic", 0, 400), TopicPartition("traffic", 1, 1000)], asynchronous=False
    )
    consumer.close()
    before = scrape(broker)
    named = {name: labels for name, labels in before if ("topic", "traffic") in labels}
    assert f"{prefix}totalproducerequests_total" in named
    sent = before[f"{prefix}bytesout_total", frozenset({("topic", "traffic")})]
    assert sent >= sum(each.stat().st_size for each in files)
    assert before[f"{prefix}bytesout_total", frozenset()] >= sent
    lag = {("consumergroup", "lagging"), ("topic", "traffic")}
    assert before["kafka_consumergroup_lag", frozenset({*lag, ("partition", "0")})] == 600
    assert before["kafka_consumergroup_lag", frozenset({*lag, ("partition", "1")})] == 0
    assert before["kafka_consumergroup_lag_sum", frozenset(lag)] == 600
    assert before["kafka_consumergroup_current_offset_sum", frozenset(lag)] == 1400
    assert before["kafka_topic_partitions", frozenset({("topic", "traffic")})] == 2
    # Nothing that only grows goes back when a topic goes.
    admin = AdminClient(servers)
    admin.delete_topics(["traffic"])["traffic"].result(20)
    after = scrape(broker)
    for (name, labels), counted in before.items():
        if name.endswith("_total") and (name, labels) in after:
            assert after[name, labels] >= counted, name
    assert not [name for name, labels in after if ("topic", "traffic") in labels]


def test_requests_times_and_errors_under_the_names_of_kafka(broker: BrokerProcess) -> None:
    def requests(name: str, **labels: str) -> float:
        return value(broker, f"kafka_network_requestmetrics_{name}", **labels)

    fill(broker, "asked", 1, 10)
    produced, fetched = (
        requests("requests_total", request="Produce"),
        requests("requests_total", request="Fetch"),
    )
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("asked", 1)])["asked"].result(20)
    assert requests("errors_total", request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
    assert requests("totaltimems_count", request="CreateTopics") >= 2
    assert 0 < requests("totaltimems", request="CreateTopics", quantile="0.99") < 20_000
    producer = Producer({**servers, "linger.ms": 0})
    consumer = Consumer(
        {**servers, "group.id": "asking", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    )
    consumer.assign([TopicPartition("asked", 0, 0)])

    def is_timed() -> bool:
        """Only some of these are looked at."""
        producer.produce("asked", b"x")
        producer.flush(20)
        consumer.consume(10, timeout=0.01)
        return all(requests("totaltimems_count", request=name) > 0 for name in ("Produce", "FetchConsumer"))

    wait_until(is_timed, broker)
    consumer.seek(TopicPartition("asked", 0, 10**9))
    wait_until(
        lambda: (
            consumer.consume(1, timeout=0.05) is not None
            and requests("errors_total", request="Fetch", error="OFFSET_OUT_OF_RANGE") >= 1
        ),
        broker,
    )
    consumer.close()
    assert requests("requests_total", request="Produce") > produced
    assert requests("requests_total", request="FetchConsumer") > fetched
    assert requests("requests_total", request="FetchFollower") == 0
    idle = value(broker, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    assert 0 < idle <= 1
    assert value(broker, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(broker, "kafka_brokers") == 1
    assert value(broker, "kafka_server_raftmetrics_current_state", current_state="leader") == 1


def test_every_metric_is_there_with_its_help(broker: BrokerProcess) -> None:
    with urlopen(
        Request(url(broker), headers={"Accept": "application/openmetrics-text"}), timeout=20
    ) as reply:
        assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
        assert reply.read().endswith(b"# EOF\n")
    with urlopen(url(broker), timeout=20) as reply:
        text = reply.read().decode()
    for declared in (*METRICS, *KAFKA_METRICS, *EXPORTER_METRICS):
        assert f"# HELP {declared.name} {declared.help}\n# TYPE {declared.name} {declared.kind}\n" in text
    assert re.search(r"^process_cpu_seconds_total [\d.]+$", text, re.MULTILINE) or sys.platform != "linux"


def test_only_metrics_can_be_read(broker: BrokerProcess) -> None:
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(url(broker).removesuffix("metrics"), timeout=20)
    assert refused.value.read() == b"there is nothing here but /metrics\n"
    with pytest.raises(HTTPError, match="405"):
        urlopen(Request(url(broker), data=b"x"), timeout=20)


def test_what_the_guide_shows_is_there(broker: BrokerProcess) -> None:
    section = GUIDE.read_text().partition("## Metrics\n")[2].partition("\n## ")[0]
    mentioned = set(re.findall(r"\bottla_\w+", section))
    assert len(mentioned) >= 5
    assert mentioned <= {declared.name for declared in METRICS}
    (listener,) = re.findall(r"--set ottla\.metrics\.listener=(\S+)$", section, re.MULTILINE)
    assert f"curl -s http://{listener}/metrics" in section
    assert f'targets: ["{listener}"]' in section


def test_a_broker_that_was_not_asked_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with BrokerProcess() as silent:
        assert "ottla.server.listener" in silent.log
        assert "prometheus_client" not in silent.log
        assert "metrics are at" not in silent.log


WITHOUT_THE_PACKAGE = """
import sys
sys.modules["prometheus_client"] = None
# kio looks for it, and it leaves a directory where it is imported.
sys.modules["hypothesis"] = None
from ottla.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_the_package_the_start_is_refused(tmp_path: Path) -> None:
    arguments = ["start", "--port", "0", "--set", "ottla.metrics.listener=127.0.0.1:0"]
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "ottla: ottla.metrics.listener=127.0.0.1:0: needs the package prometheus-client: "
        "pip install 'ottla[metrics]', or remove the key\n"
    )
    assert os.listdir(tmp_path) == []


def test_a_port_in_use_is_named_with_its_key(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            closing(BrokerProcess({"ottla.metrics.listener": address}, str(tmp_path))) as broker,
            pytest.raises(RuntimeError) as refused,
        ):
            broker.start()
    assert f"ottla: ottla.metrics.listener={address}: cannot listen there" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_the_listener_goes_with_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), ottla.testing.broker(set={"ottla.metrics.listener": ":0"}) as running:
        (port,) = re.findall(r"metrics are at http://\S+:(\d+)/metrics", caplog.text)
        with closing(socket.create_connection(("127.0.0.1", int(port)), timeout=20)) as idle:
            running.stop()
            assert idle.recv(1) == b""
        with closing(socket.socket()) as probe:
            assert probe.connect_ex(("127.0.0.1", int(port))) != 0


def test_by_https_and_with_a_password(tmp_path: Path) -> None:
    assert main(["certs", "create", "--dir", str(tmp_path)]) == 0
    settings = {
        "ottla.metrics.listener": "127.0.0.1:0",
        "ottla.metrics.tls.certificate.file": str(tmp_path / "broker.pem"),
        "ottla.metrics.username": "prometheus",
        "ottla.metrics.password": "secret: ü",
    }
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def asked(where: str, credentials: str | None) -> str:
        request = Request(where)
        if credentials is not None:
            request.add_header("Authorization", "Basic " + b64encode(credentials.encode()).decode())
        with urlopen(request, timeout=20, context=context) as reply:
            return str(reply.read(20).decode())

    with BrokerProcess(settings) as broker:
        (where,) = re.findall(r"metrics are at (https://\S+/metrics)", broker.log)
        assert asked(where, "prometheus:secret: ü").startswith("# HELP")
        for wrong in (None, "prometheus:", "prometheus:secret: u", "Prometheus:secret: ü"):
            with pytest.raises(HTTPError, match="401") as refused:
                asked(where, wrong)
            assert b"ottla.metrics.password" in refused.value.read()
            assert refused.value.headers["WWW-Authenticate"].startswith("Basic")
        with pytest.raises((URLError, OSError)):
            urlopen(where.replace("https", "http"), timeout=20).read()
        # Handshakes that are begun and left alone: one address has so many of them, and keeps no other out.
        port = int(where.rpartition(":")[2].partition("/")[0])
        with ExitStack() as stack:
            begun = [
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
                )
                for _ in range(HANDSHAKES_OF_ONE_MAX + 5)
            ]
            for turned_away in begun[HANDSHAKES_OF_ONE_MAX:]:
                turned_away.settimeout(20)
                assert turned_away.recv(1) == b""
            begun[0].settimeout(0)
            with pytest.raises(BlockingIOError):
                begun[0].recv(1)
            assert asked(where, "prometheus:secret: ü").startswith("# HELP")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ottla.metrics.username": "me"}, "ottla.metrics.username and ottla.metrics.password: give both"),
        ({"ottla.metrics.tls.key.file": "key.pem"}, "give ottla.metrics.tls.certificate.file"),
        (
            {"ottla.metrics.listener": "127.0.0.1:0", "ottla.metrics.tls.certificate.file": "nowhere.pem"},
            "ottla.metrics.tls.certificate.file=nowhere.pem: cannot be used",
        ),
    ],
)
def test_half_a_protection_is_refused(settings: dict[str, str], said: str, tmp_path: Path) -> None:
    with (
        closing(BrokerProcess(settings, str(tmp_path))) as broker,
        pytest.raises(RuntimeError, match=re.escape(said)),
    ):
        broker.start()


def test_a_collector_of_opentelemetry_gets_what_prometheus_would(tmp_path: Path) -> None:
    pushed: queue.Queue[tuple[str, str | None, bytes]] = queue.Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            pushed.put((self.path, self.headers["X-Api-Key"], body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "ottla.otel.endpoint": f"http://127.0.0.1:{server.server_port}/",
            "ottla.otel.interval.ms": "100",
            "ottla.otel.headers": "X-Api-Key=secret",
        }
        with BrokerProcess(settings, str(tmp_path)) as broker:
            fill(broker, "sent", 1, 10)
            deadline = time.monotonic() + 30
            found: dict[str, Metric] = {}
            counted = -1.0
            while counted != 10:
                assert time.monotonic() < deadline, broker.log
                path, key, body = pushed.get(timeout=30)
                assert (path, key) == ("/v1/metrics", "secret")
                # As strictly as a collector reads it.
                request = Parse(body, ExportMetricsServiceRequest())
                (resource,) = request.resource_metrics
                found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
                records = found["kafka_server_brokertopicmetrics_messagesin_total"].sum
                assert records.is_monotonic
                for point in records.data_points:
                    if [each.value.string_value for each in point.attributes] == ["sent"]:
                        counted = point.as_double
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert named["service.name"] == "ottla"
            assert named["service.instance.id"].endswith("/1")
            assert found["kafka_brokers"].gauge.data_points[0].as_double == 1
        server.shutdown()
