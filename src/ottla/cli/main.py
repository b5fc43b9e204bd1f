"""Entry point of the `ottla` command. Imports little, so that `--help` and start-up are instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli import start, stop


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return int(options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla",
        description="A Kafka-compatible event streaming broker.",
        epilog="Run `ottla COMMAND --help` for the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (start, stop):
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
