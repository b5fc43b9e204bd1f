"""A broker that is told to stop answers what it has read, whatever the answers wait for."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from raw_client import (
    JOIN_GROUP,
    RawConnection,
    api_versions,
    join_group_frame,
    parse_response,
    wait_for_coordinator,
)

import ottla.testing
from ottla.log.log import PartitionLog
from ottla.node import DRAIN_SECONDS

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def test_a_produce_that_waits_for_a_flush_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    flushing = threading.Event()
    flush = PartitionLog.flush

    async def slow_flush(log: PartitionLog) -> None:
        flushing.set()
        await asyncio.sleep(0.7)
        await flush(log)

    answers: list[object] = []
    with ottla.testing.broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic("durable", 1, 1, config={"flush.messages": "1"})
        admin.create_topics([topic])["durable"].result(20)
        monkeypatch.setattr(PartitionLog, "flush", slow_flush)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0, "log_level": 0})
        producer.produce("durable", b"value", on_delivery=lambda error, _: answers.append(error))
        producer.poll(0)
        assert flushing.wait(20)
        broker.stop()
        producer.flush(10)
    assert answers == [None]


def test_members_that_wait_for_others_do_not_hold_up_the_end() -> None:
    settings = {"group.initial.rebalance.delay.ms": 60_000}
    with (
        ottla.testing.broker(set=settings) as broker,
        RawConnection(broker.bootstrap_servers) as member,
    ):
        wait_for_coordinator(member, "lonely")
        member.send(join_group_frame("lonely"))
        with RawConnection(broker.bootstrap_servers) as other:
            assert api_versions(other), "the one before has been read as well"
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < DRAIN_SECONDS
        answer = parse_response(JOIN_GROUP, 5, member.receive())
        assert answer.error_code == ErrorCode.coordinator_not_available


def start_broker(data_dir: Path) -> subprocess.Popen[str]:
    command = [*OTTLA, "start", "--port", "0", "--data-dir", str(data_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("nohup", [False, True])
def test_the_end_of_the_terminal(tmp_path: Path, nohup: bool) -> None:
    """A clean shutdown, however often it is told; nothing at all under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        process = start_broker(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, previous)
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("Cluster:"):
            assert line, "the broker has not started"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        if nohup:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A run in the background of a shell ignores them, and so would the processes that it starts."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_an_interrupt_while_starting(tmp_path: Path, interrupts: None) -> None:
    """At whatever moment it comes, it is no reason for a traceback."""
    for delay_s in (0.2, 0.3, 0.4, 0.6):
        process = start_broker(tmp_path / str(delay_s))
        # Not to wait for something, but to come at different moments.
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert "Traceback" not in errors, f"after {delay_s} s"
        assert process.returncode == 0, f"after {delay_s} s: {errors}"
