"""Runs a tool: parse, do, and turn what goes wrong into one line and a status."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from ottla.cli.framework import catalogue
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.tool import parse

INTERRUPTED = 130
# Where documents of older versions of Kafka say --broker-list. To kafka-log-dirs it means something else.
_ONCE_TOOK_BROKER_LIST = {
    "console-producer",
    "consumer-perf-test",
    "e2e-latency",
    "get-offsets",
    "producer-perf-test",
    "verifiable-consumer",
    "verifiable-producer",
}
_EXTRAS = {
    "tools": {"confluent_kafka", "rich"},
    "spark": {"google", "numpy", "pandas", "pyarrow", "pyspark"},
    "console": {"starlette", "uvicorn"},
    "registry": {"grpc_tools", "jsonschema", "referencing"},
    "avro": {"fastavro"},
}


def run_tool(name: str, arguments: Sequence[str], prog: str) -> int:
    """The status to exit with."""
    try:
        tool = catalogue.load(name)
        _refuse_zookeeper(arguments, prog)
        if name in _ONCE_TOOK_BROKER_LIST:
            arguments = _without_broker_list(arguments, prog)
        return tool.run(parse(tool, prog, arguments))
    except ToolError as error:
        print(f"{prog}: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        extra = _extra_with(error.name)
        if extra is None:
            raise
        print(f"{prog}: needs the package {error.name}: pip install 'ottla[{extra}]'", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again while closing it.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 1


def _extra_with(module: str | None) -> str | None:
    """What to install for a module that is missing; None for one that is nobody's option."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, packages in _EXTRAS.items() if package in packages), None)


def _without_broker_list(arguments: Sequence[str], prog: str) -> list[str]:
    renamed: list[str] = []
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if name == "--broker-list":
            print(f"{prog}: --broker-list is the old name of --bootstrap-server", file=sys.stderr)
            name = "--bootstrap-server"
        renamed.append(name + separator + value)
    return renamed


def _refuse_zookeeper(arguments: Sequence[str], prog: str) -> None:
    """Old tutorials still say it; today's Kafka knows the option no more."""
    corrected: list[str] = []
    found = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--zookeeper":
            address = next(rest, "")
        elif argument.startswith("--zookeeper="):
            address = argument.partition("=")[2]
        else:
            corrected.append(argument)
            continue
        found = True
        host = address.partition("/")[0].partition(",")[0].rpartition(":")[0] or "localhost"
        if "--bootstrap-server" not in arguments:
            corrected += ["--bootstrap-server", f"{host}:9092"]
    if found:
        import shlex

        command = shlex.join(corrected)
        raise ToolError(
            "zookeeper is not a recognized option: it is gone since Kafka 4.0, use --bootstrap-server:\n"
            f"  {prog} {command}"
        )
