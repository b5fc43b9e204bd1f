"""Functions of a program that workers cannot import travel with the plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

PROGRAM = """
from __future__ import annotations

from dataclasses import dataclass
from ottla.streams import Consumed, Produced, StreamsBuilder
import beside

@dataclass
class Point:
    x: int

@dataclass
class Line:
    points: list[Point]
    label: Label | None = None

@dataclass
class Label:
    text: str

def build():
    builder = StreamsBuilder()
    lines = builder.stream("in", Consumed.with_(str, Line))
    stream = lines.map_values(lambda line: beside.double(line.points[0].x))
    stream.filter(lambda x: x > beside.LIMIT).to("out", Produced.with_(str, int))
    return builder.build()
"""
BESIDE = """
def double(x):
    return 2 * x

LIMIT = 10
"""
SENDER = """
import sys
from pyspark.cloudpickle import dumps
from ottla.streams.on_spark.shipping import ship_modules
import program
plan = program.build().plan
print(*ship_modules(plan), file=sys.stderr)
sys.stdout.buffer.write(dumps(plan))
"""
RECEIVER = """
import sys
from pyspark.cloudpickle import loads
from ottla.streams import Topology
from ottla.streams.testing import TopologyTestDriver
with TopologyTestDriver(Topology(loads(sys.stdin.buffer.read()))) as driver:
    topic = driver.create_input_topic("in")
    topic.pipe_input("k", '{"points": [{"x": 3}]}')
    topic.pipe_input("k", '{"points": [{"x": 6}], "label": {"text": "6"}}')
    assert driver.create_output_topic("out", str, int).read_values() == [12]
"""


def test_a_plan_of_a_program_works_where_the_program_is_not(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text(BESIDE)
    sent = subprocess.run([sys.executable, "-c", SENDER], cwd=tmp_path, capture_output=True, check=False)
    assert sent.returncode == 0, sent.stderr.decode()
    assert sent.stderr.decode().split() == ["beside", "program"]
    received = subprocess.run(
        [sys.executable, "-c", RECEIVER], input=sent.stdout, cwd="/", capture_output=True, check=False
    )
    assert received.returncode == 0, received.stderr.decode()
