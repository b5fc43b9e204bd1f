"""Apache Kafka as the peer: its jars through Maven, its storage formatted, one combined KRaft node.

The node runs as kafka-server-start runs it, with the settings of the server.properties that ships with it:
heap and collector flags of the start scripts, replication factor 1 for the internal topics, nothing tuned.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BrokerFailed, free_port

VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
JAVA_MAJOR_MIN = 17
FETCH_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "kafka"

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

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{log4j}</version>
    </dependency>
  </dependencies>
</project>
"""

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


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be had on this machine; the text says what is missing."""


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

    def prepare(self, port: int, data_dir: str) -> None:
        properties = Path(f"{data_dir}.properties")
        properties.write_text(
            SERVER_PROPERTIES.format(port=port, controller_port=free_port(), data_dir=data_dir)
        )
        if Path(data_dir, "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatted = self.distribution.run_tool(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            f"--cluster-id={cluster_id}",  # one word: an id may begin with a dash
            f"--config={properties}",
            timeout_s=FORMAT_TIMEOUT_S,
        )
        if formatted.returncode:
            raise BrokerFailed(f"formatting {data_dir} failed: {formatted.stdout}{formatted.stderr}")

    def argv(self, port: int, data_dir: str) -> list[str]:
        return self.distribution.argv(
            "kafka.Kafka", f"{data_dir}.properties", heap=SERVER_HEAP, log4j="server.properties"
        )


def fetch(cache: Path = CACHE) -> KafkaDistribution:
    """The jars of Apache Kafka, from the cache or else through Maven; one fetch at a time per machine."""
    java = _java()
    home = cache / VERSION
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _fetch_into(home)
    return KafkaDistribution(java, home)


def _fetch_into(home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("mvn is not installed, so the jars of Apache Kafka cannot be fetched")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    (home / "pom.xml").write_text(POM.format(kafka=VERSION, log4j=LOG4J_VERSION))
    (home / "server.properties").write_text(LOG4J.format(target="SYSTEM_OUT", level="INFO"))
    (home / "tools.properties").write_text(LOG4J.format(target="SYSTEM_ERR", level="WARN"))
    print(f"fetching Apache Kafka {VERSION} through Maven …", file=sys.stderr)
    argv = [maven, "-B", "-q", "-Dstyle.color=never", "-f", str(home / "pom.xml")]
    argv += ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"Maven did not finish within {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        complaint = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no message")
        raise KafkaUnavailable(f"Maven could not fetch Apache Kafka {VERSION}: {complaint}")
    (home / "complete").touch()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if java is None:
        raise KafkaUnavailable(
            f"java is not installed; Apache Kafka {VERSION} needs {JAVA_MAJOR_MIN} or newer"
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    if not found or int(found[1]) < JAVA_MAJOR_MIN:
        version = answer.splitlines()[0] if answer else "no version"
        raise KafkaUnavailable(
            f"Apache Kafka {VERSION} needs Java {JAVA_MAJOR_MIN} or newer, found {version}"
        )
    return java
