"""`ottla run`: streams applications on Spark, with their progress in sight until they are stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import Table, rich_table, show, show_record
from ottla.cli.framework.tool import COMMAND_CONFIG, Argument, Option, Tool

if TYPE_CHECKING:
    from ottla.streams.on_spark.progress import QueryProgress
    from ottla.streams.run import StreamsApplication

_COLUMNS = ("Query", "Batch", "Rows/s", "Lag", "Batch ms", "State keys", "State MB")
_LOOK_S = 0.5
_LINES_EVERY = 10
"""In a pipe a line per query is written this many looks apart."""


def run(given: argparse.Namespace) -> int:
    if given.status:
        from ottla.cli.application_status import show_status

        if given.application:
            raise ToolError("--status asks applications that run: give --application-id, or none for all")
        return show_status(given)
    try:
        from ottla.spark.java import JavaMissing
        from ottla.spark.session import SparkMissing, log_path, spark_session
    except ModuleNotFoundError as error:
        raise ToolError(f"needs the package {error.name}: pip install 'ottla[spark]'") from None
    from ottla.client.errors import ClusterUnreachable
    from ottla.client.peer import PeerUnusable
    from ottla.streams.errors import StreamsError
    from ottla.wire.errors import KafkaError

    if not given.application:
        raise ToolError("give the Python file of an application, such as word_count.py")
    if given.application_id and len(given.application) != 1:
        raise ToolError("--application-id names one application; give one file with it")
    try:
        applications = _applications(given)
        if given.upgrade == "plan":
            return _show_plan(given, applications)
        for application in applications:
            application.check()
        _tell(given, "starting Spark …")
        session = spark_session("ottla run", master=given.master, settings=_spark_settings(given))
        _tell(given, f"Spark {session.version} is up; its log: {log_path() or 'as configured elsewhere'}")
        with _stop_signals() as stopped, ExitStack() as cleanup:
            cleanup.callback(session.stop)
            for application in applications:
                cleanup.callback(application.stop)
                application.start(session)
                _tell(given, f"{application.config.application_id} runs")
            if given.http:
                url = cleanup.enter_context(_served(given.http, applications))
                _tell(given, f"tables: {url}/tables, topology: {url}/topology, metrics: {url}/metrics")
            failure = _watch(given, applications, stopped)
            _tell(given, "stopping …")
    except (
        StreamsError,
        KafkaError,
        ClusterUnreachable,
        PeerUnusable,
        SparkMissing,
        JavaMissing,
    ) as error:
        raise ToolError(str(error)) from None
    if failure is not None:
        raise ToolError(f"{failure}\nprogress is kept: start it again to go on from there")
    return 0


def _applications(given: argparse.Namespace) -> list[StreamsApplication]:
    from ottla.cli.applications import error_policy, load_application
    from ottla.cli.framework.properties import merged
    from ottla.streams.run import StreamsApplication, StreamsConfig

    properties = merged("command-property", given.command_config, given.command_property)
    spark_settings = _spark_settings(given)
    trigger = {"processingTime": f"{given.interval_ms} milliseconds"} if given.interval_ms else None
    built: list[StreamsApplication] = []
    for path in given.application:
        loaded = load_application(path, given.application_id)
        if any(loaded.application_id == other.config.application_id for other in built):
            raise ToolError(
                f"{path}: the application id {loaded.application_id} is taken by another of these files; "
                "set APPLICATION_ID in one of them"
            )
        on_error, dead_letter_topic = error_policy(loaded, given.on_error, given.dead_letter_topic)
        config = StreamsConfig(
            application_id=loaded.application_id,
            bootstrap_servers=given.bootstrap_server,
            state_dir=given.state_dir or "",
            master=given.master,
            on_error=on_error,
            dead_letter_topic=dead_letter_topic,
            trigger=trigger,
            properties=properties,
            fail_on_data_loss=given.fail_on_data_loss == "true",
            upgrade="discard" if given.upgrade == "discard" else "keep",
            spark_settings=spark_settings,
            processing_guarantee=given.processing_guarantee,
            max_task_idle_ms=given.max_task_idle_ms or 0,
            max_offsets_per_trigger=given.max_offsets_per_trigger,
        )
        built.append(StreamsApplication(loaded.topology, config))
    return built


def _spark_settings(given: argparse.Namespace) -> dict[str, str]:
    from ottla.cli.framework.properties import pairs

    settings = pairs("conf", given.conf)
    for name in settings:
        if not name.startswith("spark."):
            raise ToolError(
                f"--conf {name}: settings of Spark begin with spark.; those of the client go to "
                "--command-property"
            )
    return settings


def _show_plan(given: argparse.Namespace, applications: list[StreamsApplication]) -> int:
    """What would become of the state of each query; 1 if the application would not start."""
    from ottla.spark.session import spark_session
    from ottla.streams.application.upgrade import Action

    found = [
        (application.config.application_id, decision)
        for application in applications
        for decision in application.prepare(
            None
            if application.has_local_state
            else spark_session("ottla run", master=given.master, settings=_spark_settings(given))
        ).decisions
    ]
    rows = [(name, each.label, each.action.value, each.text) for name, each in found]
    data = [dict(zip(("application", "query", "action", "text"), row, strict=True)) for row in rows]
    lines = [f"{name}: {each}" for name, each in found]
    show(given, data, lines, [Table(("Application", "Query", "State", ""), rows)])
    return int(any(each.action is Action.REFUSED for _, each in found))


@contextmanager
def _served(address: str, applications: list[StreamsApplication]) -> Iterator[str]:
    try:
        from ottla.streams.serving import served
    except ModuleNotFoundError as error:
        raise ToolError(f"--http needs the package {error.name}: pip install 'ottla[streams]'") from None
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ToolError(f"--http {address}: must be HOST:PORT or PORT")
    with served(applications, host or "127.0.0.1", int(port)) as url:
        yield url


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set when someone asks the process to end; Spark's own reaction would cut a batch in two."""
    stopped = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(
    given: argparse.Namespace, applications: list[StreamsApplication], stopped: threading.Event
) -> str | None:
    """Until stopped, or all is done, or a query fails; then what failed."""
    waited_for = [(application, application.catch_up()) for application in applications] if given.once else []
    with _screen(given) as refresh:
        while not stopped.wait(_LOOK_S):
            refresh(_progress(applications))
            for application in applications:
                if (failed := application.failure()) is not None:
                    return _explained(*failed)
            if given.once and all(ahead.lag() == 0 and app.is_idle() for app, ahead in waited_for):
                refresh(_progress(applications))
                break
    return None


def _explained(name: str, failure: Exception) -> str:
    from ottla.streams.on_spark.progress import explain

    return f"{name} failed: {explain(failure)}"


def _progress(applications: list[StreamsApplication]) -> list[QueryProgress]:
    from ottla.streams.on_spark.progress import progress_of

    queries = [query for application in applications for query in application.queries]
    return [told for query in queries if (told := progress_of(query)) is not None]


@contextmanager
def _screen(given: argparse.Namespace) -> Iterator[Callable[[list[QueryProgress]], None]]:
    """A table that changes in place on a terminal; in a pipe a line per query, now and then."""
    if given.json or not sys.stdout.isatty():
        yield _lines(given)
        return
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        yield lambda progress: live.update(rich_table(_table(progress)))


def _table(progress: list[QueryProgress]) -> Table:
    rows = [
        (
            each.name,
            each.batch_id,
            round(each.rows_per_second),
            "–" if each.lag is None else each.lag,
            each.batch_ms,
            "–" if each.state_keys is None else each.state_keys,
            round(each.state_bytes / 1e6),
        )
        for each in progress
    ]
    return Table(_COLUMNS, rows)


def _lines(given: argparse.Namespace) -> Callable[[list[QueryProgress]], None]:
    last: dict[str, int] = {}
    looks = 0

    def write(progress: list[QueryProgress]) -> None:
        nonlocal looks
        looks += 1
        for each in progress:
            if last.get(each.name) == each.batch_id or (looks % _LINES_EVERY and each.name in last):
                continue
            last[each.name] = each.batch_id
            if given.json:
                show_record(
                    {
                        "query": each.name,
                        "batch": each.batch_id,
                        "rows": each.rows,
                        "rowsPerSecond": round(each.rows_per_second),
                        "lag": each.lag,
                        "batchMs": each.batch_ms,
                        "stateKeys": each.state_keys,
                        "stateBytes": each.state_bytes,
                    }
                )
            else:
                lag = "unknown" if each.lag is None else f"{each.lag:,}"
                print(
                    f"{each.name}: batch {each.batch_id}, {each.rows:,} rows in {each.batch_ms} ms, "
                    f"{each.rows_per_second:,.0f} rows/s, lag {lag}, "
                    f"{each.state_bytes / 1e6:,.0f} MB of state",
                    flush=True,
                )

    return write


def _tell(given: argparse.Namespace, text: str) -> None:
    print(f"{given.prog}: {text}", file=sys.stderr, flush=True)


TOOL = Tool(
    name="run",
    description=(
        "Run streams applications on Spark until they are stopped. Each file is a Python program with\n"
        "a function build() that returns the topology, or a variable topology. All share one Java virtual\n"
        "machine. A restart goes on where the last run stopped."
    ),
    run=run,
    arguments=(Argument("application", "a Python file with a topology", many=True),),
    options=(
        Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT", default="localhost:9092"),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the client", "KEY=VALUE", repeats=True),
        Option("application-id", "instead of APPLICATION_ID in the file, or the file's name", "ID"),
        Option(
            "master",
            "where Spark runs, such as spark://host:7077 (default: all cores of this machine)",
            "URL",
        ),
        Option(
            "conf",
            "a setting of Spark, such as spark.sql.shuffle.partitions=8, which divides state anew",
            "KEY=VALUE",
            repeats=True,
        ),
        Option(
            "state-dir",
            "for state and progress (default: ~/.ottla/streams); all of Spark must reach it",
            "DIR",
        ),
        Option("interval-ms", "the least time between micro-batches", "MS", parse=int),
        Option(
            "max-offsets-per-trigger",
            "how many records a micro-batch of a query takes at most (default: all there are)",
            "COUNT",
            parse=int,
        ),
        Option(
            "max-task-idle-ms",
            "how long records wait for topics they are joined with that have nothing yet (default: 0)",
            "MS",
            parse=int,
        ),
        Option("once", "work on what is there and all that follows from it, then end"),
        Option(
            "processing-guarantee",
            "at_least_once is quicker, and writes results twice after a crash",
            "GUARANTEE",
            default="exactly_once_v2",
            choices=("exactly_once_v2", "at_least_once"),
        ),
        Option(
            "upgrade",
            "what happens to state that a changed program cannot keep: keep refuses to start, discard "
            "begins without it; plan only prints what would be kept, rebuilt from changelogs, or dropped",
            "HOW",
            default="keep",
            choices=("keep", "plan", "discard"),
        ),
        Option(
            "fail-on-data-loss",
            "whether to stop where records are gone that were not read yet, or to go on with what is left",
            "BOOLEAN",
            default="true",
            choices=("true", "false"),
        ),
        Option(
            "on-error",
            "what to do with a record that the program fails on (default: ON_ERROR in the file, or fail)",
            "POLICY",
            choices=("fail", "skip", "dead-letter"),
        ),
        Option(
            "dead-letter-topic",
            "where records go that the program fails on (default: DEAD_LETTER_TOPIC in the file)",
            "TOPIC",
        ),
        Option(
            "http",
            "serve the applications' tables, topology and metrics over HTTP, and announce them to --status",
            "[HOST:]PORT",
        ),
        Option(
            "status",
            "ask the applications that run on the cluster with --http how they are, all or --application-id",
        ),
    ),
    examples=(
        "word_count.py",
        "word_count.py page_views.py --bootstrap-server localhost:9092 --http 8080",
        "--status --bootstrap-server localhost:9092",
    ),
)
