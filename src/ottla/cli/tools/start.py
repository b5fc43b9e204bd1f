"""`ottla start`: the options of a broker in the foreground. Running it is the business of `broker`."""

from __future__ import annotations

import argparse
import gc

from ottla.cli.broker.stop_signals import end_at_once_until_started
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.tool import Argument, Option, Tool

_NOTES = """\
Without a file, the broker listens on 127.0.0.1:9092 and keeps its data in ./ottla-data, and new
consumer groups begin at once (group.initial.rebalance.delay.ms=0).
With --brokers, each broker is a process of its own, with its settings and data in DIR/broker-1 and so on.
They listen on consecutive ports from --port on, and for their metadata quorum on the ports after those: three
on 9092 to 9094 and 9095 to 9097. --port 0 takes free ones. One that dies is started again after half a
second, and after pauses of up to 30 s if it does not stay up; one that is stopped is not. The file in its
directory starts a broker alone.
SIGTERM, Ctrl-C or the end of the terminal (SIGHUP, unless run by nohup) finishes what is in flight, syncs
the data and ends with status 0; a second SIGTERM or Ctrl-C ends at once.
"""


def run(options: argparse.Namespace) -> int:
    end_at_once_until_started()
    if options.brokers is not None:
        from ottla.cli.broker.several import serve_several

        return serve_several(
            options.brokers,
            options.properties_file,
            options.port,
            options.data_dir,
            options.rack,
            options.set,
            options.log_level,
            options.console,
        )
    if options.rack is not None:
        raise ToolError("--rack is for --brokers; a single broker has --set broker.rack=NAME")
    # Nothing made while starting is garbage; `serve` freezes it all and turns the collector on again.
    gc.disable()
    # Late, because asyncio and the broker take longer to import than `ottla --help` to answer.
    from ottla.cli.broker.serve import serve

    return serve(
        options.properties_file,
        options.port,
        options.data_dir,
        options.set,
        options.log_level,
        options.console,
    )


def _brokers(text: str) -> int:
    from ottla.config.local_cluster import BROKERS_MAX

    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be a number from 1 to {BROKERS_MAX}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: must be a port from 0 to 65535")
    return int(text)


TOOL = Tool(
    name="start",
    description="Run a broker in the foreground.",
    run=run,
    arguments=(Argument("properties_file", "settings, as Kafka's file of that name", optional=True),),
    options=(
        Option("port", "port to listen on; 0 takes a free one", "PORT", _port),
        Option("data-dir", "directory for data, instead of log.dirs", "DIR"),
        Option("brokers", "run a cluster of N brokers", "N", _brokers),
        Option("rack", "with --brokers: their rack (default: the name of this machine)", "RACK"),
        Option("set", "a setting that wins over the file; may be repeated", "KEY=VALUE", repeats=True),
        Option(
            "console",
            "serve the web console, too, at this port of localhost (without one: 8080)",
            "PORT",
            _port,
            value_if_bare="8080",
        ),
        Option(
            "log-level",
            "how much to log: debug, info, warning or error",
            "LEVEL",
            default="info",
            choices=("debug", "info", "warning", "error"),
        ),
    ),
    examples=(
        "",
        "--console",
        "server.properties --set num.partitions=3",
        "--brokers 3 --data-dir /var/lib/ottla",
    ),
    notes=_NOTES,
    speaks_json=False,
)
