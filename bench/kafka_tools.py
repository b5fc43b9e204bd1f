"""Apache Kafka's own performance tools as the client, against either broker, and what they print."""

from __future__ import annotations

import re
import subprocess

from bench.kafka_peer import KafkaDistribution
from bench.latency import Latency

TOOL_TIMEOUT_S = 120
MB = 1e6


class ToolFailed(Exception):
    """A tool ended without a result; the text holds what it complained about."""


def producer_mb_per_s(
    kafka: KafkaDistribution, port: int, topic: str, record_bytes: int, records: int, acks: str
) -> float:
    """The first fifth warms up the tool's virtual machine and is not counted."""
    output = _run(
        kafka,
        "ProducerPerformance",
        *("--bootstrap-server", f"127.0.0.1:{port}"),
        *("--topic", topic),
        *("--record-size", str(record_bytes)),
        *("--num-records", str(records)),
        *("--warmup-records", str(records // 5)),
        *("--throughput", "-1"),
        *("--command-property", f"acks={acks}"),
    )
    return parse_producer(output) * record_bytes / MB


def consumer_mb_per_s(
    kafka: KafkaDistribution, port: int, topic: str, record_bytes: int, records: int
) -> float:
    """From the beginning of the topic; joining the group is not counted."""
    output = _run(
        kafka,
        "ConsumerPerformance",
        *("--bootstrap-server", f"127.0.0.1:{port}"),
        *("--topic", topic),
        *("--num-records", str(records)),
    )
    return parse_consumer(output) * record_bytes / MB


def round_trip(kafka: KafkaDistribution, port: int, topic: str, record_bytes: int, records: int) -> Latency:
    """Producer to consumer, one record at a time, acks=all."""
    arguments = (f"127.0.0.1:{port}", topic, str(records), "all", str(record_bytes))
    return parse_end_to_end(_run(kafka, "EndToEndLatency", *arguments))


def parse_producer(output: str) -> float:
    """Records per second of the last summary line, which is the steady state where there was a warm-up."""
    rates = re.findall(r"([\d.]+) records/sec .*99\.9th", output)
    if not rates:
        raise ToolFailed(f"the producer's output has no summary: {output[-500:]}")
    return float(rates[-1])


def parse_consumer(output: str) -> float:
    """Records per second while fetching: the last column of the last line."""
    lines = [line for line in output.splitlines() if line.count(",") >= 9 and line[0].isdigit()]
    if not lines:
        raise ToolFailed(f"the consumer's output has no summary: {output[-500:]}")
    return float(lines[-1].split(",")[-1])


def parse_end_to_end(output: str) -> Latency:
    found = re.search(r"50th = ([\d.]+), 99th = ([\d.]+), 99\.9th = ([\d.]+)", output)
    if not found:
        raise ToolFailed(f"the latency tool's output has no percentiles: {output[-500:]}")
    return Latency(*(float(value) for value in found.groups()))


def complaint(output: str) -> str:
    """The root cause of a Java stack trace in one line."""
    lines = [line.strip() for line in output.splitlines() if "Exception" in line or "ERROR" in line]
    return (lines or output.splitlines() or ["no message"])[-1].removeprefix("Caused by: ")


def _run(kafka: KafkaDistribution, tool: str, *arguments: str) -> str:
    try:
        done = kafka.run_tool(f"org.apache.kafka.tools.{tool}", *arguments, timeout_s=TOOL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{tool} did not finish within {TOOL_TIMEOUT_S} s") from None
    if done.returncode:
        raise ToolFailed(f"{tool} ended with {done.returncode}: {complaint(done.stderr or done.stdout)}")
    return done.stdout
