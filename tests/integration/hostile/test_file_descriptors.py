"""Silent connections up to the limit of open files, while the broker needs files itself."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bystander import Bystander, allow_connections
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import RawConnection

from ottla.testing import BrokerProcess

LIMIT = 1024
SEGMENTS = 20


@contextmanager
def broker_with_few_descriptors() -> Iterator[BrokerProcess]:
    """As where nobody has raised the limit, and the broker may not."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    with BrokerProcess() as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == allowed
        yield broker


def test_connections_are_refused_before_the_logs_run_out_of_files() -> None:
    allow_connections(2 * LIMIT)
    with broker_with_few_descriptors() as broker, Bystander(broker.bootstrap_servers) as bystander:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        rolled = NewTopic("rolled", 1, 1, config={"segment.bytes": "1048576"})
        admin.create_topics([rolled])["rolled"].result(20)
        # Clients that are connected stay so.
        producer.produce("rolled", b"first")
        assert producer.flush(20) == 0
        silent = [RawConnection(broker.bootstrap_servers) for _ in range(LIMIT + 200)]
        refused = 0
        for connection in silent:
            connection.socket.settimeout(0.001)
            try:
                refused += connection.was_closed()
            except TimeoutError:
                continue
        assert 200 < refused < LIMIT, f"{refused} of {len(silent)} were refused"

        # New topics and new segments get their files all the same.
        created = admin.create_topics([NewTopic("new", 50, 1)], request_timeout=20)
        created["new"].result(20)
        failures: list[object] = []
        for _ in range(SEGMENTS):
            for partition, topic in ((0, "rolled"), (7, "new")):
                producer.produce(
                    topic,
                    bytes(900_000),
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            assert producer.flush(20) == 0
        assert failures == []
        bystander.assert_was_served()
        for connection in silent:
            connection.close()
        assert "limit of open files" in broker.log
        assert broker.stop() == 0


def test_a_low_limit_is_told_at_start() -> None:
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("many", 450, 1)], request_timeout=60)["many"].result(60)
        assert "limit of open files" not in broker.log
        assert broker.stop() == 0
        command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "start",
            "--port",
            "0",
            "--data-dir",
            broker.data_dir,
        ]
        limited = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *command]
        process = subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            while not (line := process.stdout.readline()).startswith("Cluster:"):
                assert line, "the broker has not started"
            process.terminate()
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
        assert "limit of open files is 1024" in errors
