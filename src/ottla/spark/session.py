"""A SparkSession made for pipelines over topics: `spark_session()` and that is all.

Spark writes pages of log lines to the terminal, needs a Java to be found, and its defaults are for large
batch jobs. Here the lines go to a file whose path is told, Java is found or its absence explained, and
defaults fit micro-batches on few cores. Whatever is set elsewhere (spark-submit, spark-defaults.conf, the
`settings` argument) wins over these defaults.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ottla.spark import local_files
from ottla.spark.engine import forget_dead_machine, machine_runs, start_machine
from ottla.spark.java import bundled_java, find_java

__all__ = ["SparkMissing", "forget_dead_session", "log_path", "spark_session"]

LOCAL_MASTER: Final = "local[*]"
SHUFFLE_PARTITIONS_MAX: Final = 8
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_LOG4J = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 50MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
# Warns of each key that is asked for and not there, which is no news.
logger.state.name = org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer
logger.state.level = error
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""

_LAUNCHER_NAME: Final = "pyspark-shell"
# Record batches of a megabyte are more than half a region of the default collector, which treats each as a
# case of its own; writing took a third more processor time with it.
_COLLECTOR: Final = "-XX:+UseParallelGC"
_NAMES_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# Class path beside that of Spark itself and of its settings.
_CLASS_PATH: Final = "SPARK_DIST_CLASSPATH"
_log_path: str | None = None
# Whether the machine of this process was started here, and so knows our classes.
_has_own_machine = False
# Settings are the session's, which several queries may be started on at a time, one within the other.
_settings_lock = threading.RLock()


class SparkMissing(Exception):
    """PySpark or something it needs is not installed; the text says what to install."""


def spark_session(
    app_name: str = "ottla",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_dir: str | None = None,
    log_level: str = "warn",
) -> Any:
    """The session of this process, started if there is none. Raises SparkMissing or JavaMissing.

    `master` is Spark's: `local[*]`, `spark://host:7077`, …; without one, what spark-submit or
    spark-defaults.conf say, else all cores of this machine. Where Spark's log went: `log_path()`.
    """
    _require_packages()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    # Workers must run the interpreter that has ottla, not whichever `python3` comes first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    wanted = dict(settings or {})
    if master is not None:
        wanted["spark.master"] = master
    if not _machine_runs():
        _start_machine(wanted, Path(log_dir) if log_dir else _default_log_dir(), log_level)
    conf = SparkConf()
    conf.setAll(list(wanted.items()))
    conf.setIfMissing("spark.master", LOCAL_MASTER)
    # The launcher sets these two itself when nobody else did.
    if conf.get("spark.app.name", _LAUNCHER_NAME) == _LAUNCHER_NAME:
        conf.set("spark.app.name", app_name)
    conf.set("spark.ui.showConsoleProgress", wanted.get("spark.ui.showConsoleProgress", "false"))
    for name, value in _defaults((conf.get("spark.master") or LOCAL_MASTER).startswith("local")).items():
        conf.setIfMissing(name, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


@contextmanager
def with_settings(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """For starting queries: a query keeps the settings of its session as they were when it was started."""
    with _settings_lock:
        before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)


def forget_dead_session() -> bool:
    """Whether the Java virtual machine of this process has died. The next session starts another one then."""
    return forget_dead_machine()


def log_path() -> str | None:
    """The file with Spark's log lines, once a session was started here."""
    return _log_path


def file_settings(spark: Any) -> dict[str, str]:
    """What makes a query write local files without starting processes, where all of it runs in a machine that
    was started here."""
    return local_files.SETTINGS if _has_own_machine and _is_one_machine(spark.sparkContext.master) else {}


def _is_one_machine(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def _defaults(is_local: bool) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Fewer and larger batches cross to the Python workers; their bytes are bounded separately.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Each shuffle partition is a task and a state store per micro-batch: 200 of them are for clusters,
        # and more than there are cores wait for each other.
        "spark.sql.shuffle.partitions": str(min(cores, SHUFFLE_PARTITIONS_MAX)),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # What old micro-batches leave behind is deleted beside the next one, not before it.
        "spark.sql.streaming.asyncLogPurge.enabled": "true",
        # The text of a plan, made for each micro-batch: the long form takes a tenth of the driver's work.
        "spark.sql.ui.explainMode": "simple",
        # A second copy of a writing task would only be refused by the exactly-once writer.
        "spark.speculation": "false",
    }
    if is_local:
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return defaults


def _require_packages() -> None:
    for package in ("pyspark", "pyarrow", "pandas", "numpy"):
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            raise SparkMissing(
                f"The package {package} is not installed; pipelines need it. "
                "Install all they need with `pip install 'ottla[spark]'`."
            ) from None


def _machine_runs() -> bool:
    """Under spark-submit, or after an earlier session, there is a Java virtual machine already."""
    return machine_runs() or "PYSPARK_GATEWAY_PORT" in os.environ


def _start_machine(wanted: Mapping[str, str], log_dir: Path, log_level: str) -> None:
    from pyspark import SparkConf

    global _log_path, _has_own_machine
    os.environ["JAVA_HOME"] = find_java(os.environ, bundled_java(), _cache_dir()).home
    log_dir.mkdir(parents=True, exist_ok=True)
    path = str(log_dir / f"spark-{os.getpid()}.log")
    log4j = log_dir / f"spark-{os.getpid()}.log4j2.properties"
    log4j.write_text(_LOG4J.format(path=path, level=log_level))
    # These only count on the command line of the machine, which is why they are not set on the session.
    conf = SparkConf(loadDefaults=False)
    given = wanted.get("spark.driver.extraJavaOptions", "")
    options = [f"-Dlog4j2.configurationFile=file:{log4j}", *_collector_options(given, os.environ), given]
    conf.set("spark.driver.extraJavaOptions", " ".join(options).strip())
    for name in ("spark.driver.memory", "spark.driver.extraClassPath", "spark.jars", "spark.jars.packages"):
        if name in wanted:
            conf.set(name, wanted[name])
    with open(f"{path}.out", "ab") as out, _with_class_path(_own_classes()):
        start_machine(conf, out)
    _log_path, _has_own_machine = path, True


@cache
def _own_classes() -> tempfile.TemporaryDirectory[str]:
    """Until the process ends, and nobody else's to write to."""
    directory = tempfile.TemporaryDirectory(prefix="ottla-classes-")
    local_files.put_classes(Path(directory.name))
    return directory


@contextmanager
def _with_class_path(directory: tempfile.TemporaryDirectory[str]) -> Iterator[None]:
    before = os.environ.get(_CLASS_PATH)
    os.environ[_CLASS_PATH] = directory.name if not before else f"{before}{os.pathsep}{directory.name}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CLASS_PATH]
        else:
            os.environ[_CLASS_PATH] = before


def _collector_options(given: str, environment: Mapping[str, str]) -> list[str]:
    """Of two collectors Java would take none, so whoever names one has the choice."""
    named = (given, *(environment.get(name, "") for name in _JAVA_OPTIONS))
    return [] if any(_NAMES_COLLECTOR.search(options) for options in named) else [_COLLECTOR]


def _default_log_dir() -> Path:
    return Path(tempfile.gettempdir()) / f"ottla-spark-{os.getuid()}"


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ottla"
