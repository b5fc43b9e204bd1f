"""The programs that count words: Ottla's streams, Kafka Streams in Java, and the Python ones from PyPI.

Each Python peer gets an environment of its own under .cache/peers, because their pins contradict each other.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import kafka_peer
from bench.maven import CACHE, PeerUnavailable, fetch_jars, find_java

HERE = Path(__file__).resolve().parent
INSTALL_TIMEOUT_S = 600
STREAMS_ARTIFACTS = (
    f"org.apache.kafka:kafka-streams:{kafka_peer.VERSION}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{kafka_peer.LOG4J_VERSION}",
)

Command = Callable[[str, str, str, str], list[str]]
"""From bootstrap address, source topic, target topic and a directory for state."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    title: str
    prepare: Callable[[], Command]
    is_python: bool = False


def _ottla() -> Command:
    return lambda *arguments: [sys.executable, str(HERE / "with_ottla.py"), *arguments]


def kafka_streams_command(program: Path) -> list[str]:
    """Runs a Java program with Kafka Streams at hand."""
    title = f"Kafka Streams {kafka_peer.VERSION}"
    java = find_java(title)
    home = CACHE / "kafka-streams" / kafka_peer.VERSION
    libs = fetch_jars(home, title, *STREAMS_ARTIFACTS)
    log4j = kafka_peer.fetch().home / "tools.properties"
    return [java, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{libs}/*", str(program)]


def _kafka_streams(guarantee: str) -> Callable[[], Command]:
    def prepare() -> Command:
        begin = kafka_streams_command(HERE / "WordCount.java")
        return lambda *arguments: [*begin, *arguments, guarantee]

    return prepare


def _python(script: str, *requirements: str) -> Callable[[], Command]:
    def prepare() -> Command:
        home = CACHE / "peers" / requirements[0].replace("==", "-")
        python = str(home / "bin" / "python")
        if not (home / "complete").exists():
            print(f"installing {requirements[0]} …", file=sys.stderr)
            try:
                subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
                subprocess.run(
                    [python, "-m", "pip", "install", "--quiet", *requirements],
                    check=True,
                    timeout=INSTALL_TIMEOUT_S,
                )
            except (subprocess.SubprocessError, OSError) as error:
                raise PeerUnavailable(f"{requirements[0]} could not be installed: {error}") from None
            (home / "complete").touch()
        return lambda *arguments: [python, str(HERE / script), *arguments]

    return prepare


CONTENDERS = (
    Contender("ottla", "Ottla", _ottla),
    Contender("kafka-streams", "Kafka Streams", _kafka_streams("at_least_once")),
    Contender("kafka-streams-eos", "Kafka Streams, exactly once", _kafka_streams("exactly_once_v2")),
    Contender("quix", "Quix Streams", _python("with_quix.py", "quixstreams==3.28.1"), is_python=True),
    Contender(
        "bytewax",
        "Bytewax",
        _python("with_bytewax.py", "bytewax==0.21.1", "confluent-kafka"),
        is_python=True,
    ),
    Contender("faust", "Faust", _python("with_faust.py", "faust-streaming==0.15.3"), is_python=True),
)
