"""Java programs with a registry: Confluent's Java client, and the serializer that Flink has on top of it.

Confluent's own artefacts are in no repository that everybody has; Flink's jar has its client inside.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench.maven import CACHE, PeerUnavailable, fetch_jars, find_java
from registry_process import RegistryProcess

from ottla.streams import Consumed, Produced, SchemaRegistry, StreamsBuilder
from ottla.streams.testing import TopologyTestDriver

pytestmark = [
    pytest.mark.xdist_group("registry"),
    pytest.mark.maven,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

VERSION = "2.0.0"
ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","fields":['
    '{"name":"id","type":"string"},{"name":"cents","type":"long"}]}'
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line up to its arguments."""
    title = f"Flink {VERSION} with Confluent's client"
    try:
        java = find_java(title)
        libs = fetch_jars(
            CACHE / f"flink-registry-{VERSION}",
            title,
            f"org.apache.flink:flink-sql-avro-confluent-registry:{VERSION}",
            f"org.apache.flink:flink-core:{VERSION}",
        )
    except PeerUnavailable as error:
        pytest.skip(str(error))
    classes = tmp_path_factory.mktemp("classes")
    source = Path(__file__).parent / "java" / "Registered.java"
    compiler = Path(java).with_name("javac")
    if not compiler.exists():
        pytest.skip("javac is not installed")
    command = [str(compiler), "-cp", f"{libs}/*", "-d", str(classes), str(source)]
    subprocess.run(command, check=True, timeout=300)
    return [java, "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*:{classes}", "Registered"]


def test_java_reads_ours_and_we_read_javas_also_through_a_topology(
    registry: RegistryProcess, program: list[str]
) -> None:
    serde = SchemaRegistry(registry.url).avro(ORDER, topic="java")

    def run(subject: str, data: bytes | None) -> dict[str, str]:
        assert data is not None
        ran = subprocess.run(
            [*program, registry.url, subject, ORDER, data.hex()],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        return dict(line.split(" ", 1) for line in ran.stdout.splitlines())

    ours = serde.serialize({"id": "from Python", "cents": 5})
    told = run("java-value", ours)
    assert told["read"] == '{"id": "from Python", "cents": 5}'
    written = bytes.fromhex(told["wrote"])
    assert serde.deserialize(written) == {"id": "from Java", "cents": 7}
    # Both begin with the one id that the schema has.
    assert ours is not None and written[:5] == ours[:5]
    assert (told["version"], told["same"]) == ("1", "true")
    assert (told["level"], told["refused"]) == ("FULL", "409")

    # What Java wrote goes through a topology, and Java reads what comes of it.
    builder = StreamsBuilder()
    sold = SchemaRegistry(registry.url).avro(ORDER, topic="java-sold")
    doubled = builder.stream("java", Consumed.with_(str, serde)).map_values(
        lambda order: {**order, "cents": 2 * order["cents"]}
    )
    doubled.to("java-sold", Produced.with_(str, sold))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("java").pipe_bytes(b"key", written)
        data = driver.create_output_topic("java-sold", str, bytes).read_value()
    assert run("java-sold-value", data)["read"] == '{"id": "from Java", "cents": 14}'
