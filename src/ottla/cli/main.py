"""Entry points: the `ottla` command, and `kafka-topics` and the like, which go by the name they are run as.

Imports little, so that `--help` and start-up are instant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.framework import catalogue
from ottla.cli.framework.mistyped import Parser, did_you_mean


def main(arguments: Sequence[str] | None = None) -> int:
    if arguments is None:
        _own_the_process()
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = given[0].removeprefix("kafka-").removesuffix(".sh") if given else ""
    if name in catalogue.NAMES:
        from ottla.cli.framework.run import run_tool

        return run_tool(name, given[1:], f"ottla {name}")
    if name and not name.startswith("-"):
        return _unknown_command(given[0], name)
    _parser().parse_args(given or ["--help"])
    return 0


def kafka_tool() -> int:
    """What `kafka-topics` and `kafka-topics.sh` run: the tool is the one this process was started as."""
    from ottla.cli.framework.run import run_tool

    _own_the_process()
    prog = os.path.basename(sys.argv[0])
    return run_tool(prog.removesuffix(".sh").removeprefix("kafka-"), sys.argv[1:], prog)


def _unknown_command(given: str, name: str) -> int:
    print(f"ottla: there is no command {given}{did_you_mean(name, catalogue.NAMES)}", file=sys.stderr)
    print(catalogue.overview(), file=sys.stderr)
    return 2


def _own_the_process() -> None:
    """kio loads Hypothesis where it is installed: in a development environment, 0.2 s of every start."""
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ottla",
        usage="ottla [-h] [--version] COMMAND ...",
        description="A Kafka-compatible event streaming broker and its tools.",
        epilog=(
            f"{catalogue.overview()}\n\nRun `ottla COMMAND --help` for the options of a command. "
            "Tools are also installed under the\nnames of Kafka's: kafka-topics, kafka-topics.sh and so on."
        ).lstrip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
