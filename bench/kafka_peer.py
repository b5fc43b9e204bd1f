"""Apache Kafka as the peer: its jars through Maven, its storage formatted, one combined KRaft node.

The node runs as kafka-server-start runs it, with the settings of the server.properties that ships with it:
heap and collector flags of the start scripts, replication factor 1 for the internal topics, nothing tuned.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BrokerFailed, free_port
from bench.maven import CACHE, fetch_jars, find_java

VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
FORMAT_TIMEOUT_S = 60
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
)

SERVER_HEAP = ("-Xmx1G", "-Xms1G")
TOOL_HEAP = ("-Xmx512M",)
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.target = {target}
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
"""

SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data_dir}
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@dataclass(frozen=True, slots=True)
class KafkaDistribution:
    java: str
    home: Path

    @property
    def libs(self) -> Path:
        return self.home / "libs"

    def argv(self, main_class: str, *arguments: str, heap: tuple[str, ...], log4j: str) -> list[str]:
        settings = f"-Dlog4j2.configurationFile={self.home / log4j}"
        return [self.java, *heap, *JVM_FLAGS, settings, "-cp", f"{self.libs}/*", main_class, *arguments]

    def run_tool(
        self, main_class: str, *arguments: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """One of Kafka's command line tools, as its script in bin/ would run it; output is captured."""
        argv = self.argv(main_class, *arguments, heap=TOOL_HEAP, log4j="tools.properties")
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """A `BrokerKind`."""

    distribution: KafkaDistribution
    name: str = "Kafka"
    settings: str = ""
    """Lines added to server.properties; {port} and {controller_port} are the node's."""
    format_flags: tuple[str, ...] = ()

    def prepare(self, port: int, data_dir: str) -> None:
        properties = Path(f"{data_dir}.properties")
        template = SERVER_PROPERTIES + self.settings
        properties.write_text(template.format(port=port, controller_port=free_port(), data_dir=data_dir))
        if Path(data_dir, "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatted = self.distribution.run_tool(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            f"--cluster-id={cluster_id}",  # one word: an id may begin with a dash
            f"--config={properties}",
            *self.format_flags,
            timeout_s=FORMAT_TIMEOUT_S,
        )
        if formatted.returncode:
            raise BrokerFailed(f"formatting {data_dir} failed: {formatted.stdout}{formatted.stderr}")

    def argv(self, port: int, data_dir: str) -> list[str]:
        return self.distribution.argv(
            "kafka.Kafka", f"{data_dir}.properties", heap=SERVER_HEAP, log4j="server.properties"
        )


def fetch() -> KafkaDistribution:
    """The jars of Apache Kafka, from the cache or else through Maven; PeerUnavailable where neither works."""
    java = find_java(f"Apache Kafka {VERSION}")
    home = CACHE / "kafka" / VERSION
    fetch_jars(home, f"Apache Kafka {VERSION}", *ARTIFACTS)
    _settle(home / "server.properties", LOG4J.format(target="SYSTEM_OUT", level="INFO"))
    _settle(home / "tools.properties", LOG4J.format(target="SYSTEM_ERR", level="WARN"))
    return KafkaDistribution(java, home)


def _settle(path: Path, text: str) -> None:
    """Whole or not at all: another process may be starting a broker with it."""
    if not path.exists():
        draft = path.with_suffix(f".{uuid.uuid4()}")
        draft.write_text(text)
        draft.rename(path)
