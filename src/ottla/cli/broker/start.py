"""`ottla start`: the options of a broker in the foreground. Running it is `serve`'s business."""

from __future__ import annotations

import argparse
import gc
from typing import Any

from ottla.cli.broker.stop_signals import end_at_once_until_started

_EPILOG = """\
Without a file, the broker listens on 127.0.0.1:9092 and keeps its data in ./ottla-data, and new
consumer groups begin at once (group.initial.rebalance.delay.ms=0).
SIGTERM, Ctrl-C or the end of the terminal (SIGHUP, unless run by nohup) finishes what is in flight, syncs
the data and ends with status 0; a second SIGTERM or Ctrl-C ends at once.
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "start",
        help="run a broker in the foreground",
        description="Run a broker in the foreground.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "properties_file",
        nargs="?",
        metavar="server.properties",
        help="settings, as Kafka's file of that name",
    )
    parser.add_argument("--port", type=_port, help="port to listen on; 0 takes a free one")
    parser.add_argument("--data-dir", metavar="DIR", help="directory for data, instead of log.dirs")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much to log (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    end_at_once_until_started()
    # Nothing made while starting is garbage; `serve` freezes it all and turns the collector on again.
    gc.disable()
    # Late, because asyncio and the broker take longer to import than `ottla --help` to answer.
    from ottla.cli.broker.serve import serve

    return serve(options.properties_file, options.port, options.data_dir, options.settings, options.log_level)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: must be a port from 0 to 65535")
    return int(text)
