"""A command line tool as one declaration: parser, `--help`, its reference page and completion.

Flags and their values are Apache Kafka's, so that scripts and tutorials work as they are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.framework.mistyped import Parser

Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """`--name VALUE`, or a flag where there is no `value`."""

    name: str
    help: str
    value: str = ""
    """What stands for the value in the help."""
    parse: Parse = str
    default: Any = None
    required: bool = False
    repeats: bool = False
    choices: tuple[str, ...] = ()
    short: str = ""
    value_if_bare: str | None = None
    """For an option whose value may be left out."""
    many: bool = False
    """Takes all values up to the next option."""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_").replace(".", "_")


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that is given by its place."""

    name: str
    help: str
    parse: Parse = str
    optional: bool = False
    many: bool = False
    rest: bool = False
    """Takes all that follows, options included, as it is."""


@dataclass(frozen=True, slots=True)
class Command:
    """A tool within a tool, such as `kafka-storage format`."""

    name: str
    help: str
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    options: tuple[Option, ...]
    run: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...] = ()
    commands: tuple[Command, ...] = ()
    examples: tuple[str, ...] = field(default=())
    """Command lines, as they are typed after the tool's name."""
    notes: str = ""
    """What else there is to know."""
    speaks_json: bool = True


BOOTSTRAP_SERVER = Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT", required=True)
EITHER_SERVER = Option("bootstrap-server", "the broker(s) to connect to", "HOST:PORT")
EITHER_CONTROLLER = Option("bootstrap-controller", "the controller(s) to connect to instead", "HOST:PORT")
COMMAND_CONFIG = Option("command-config", "a properties file with settings of the client", "FILE")
JSON = Option("json", "print JSON instead of text")


class _ToolParser(Parser):
    """Ends with status 1 where it cannot go on, as Apache Kafka's tools do."""

    status = 1


def parser(tool: Tool, prog: str) -> argparse.ArgumentParser:
    from ottla import __version__

    examples = "".join(f"\n  {prog} {example}".rstrip() for example in tool.examples)
    built = _ToolParser(
        prog=prog,
        description=tool.description,
        epilog="\n\n".join(filter(None, (examples and f"examples:{examples}", tool.notes.strip()))) or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    built.add_argument("--version", action="version", version=f"ottla {__version__}")
    _add_all(built, tool.options)
    for argument in tool.arguments:
        nargs = "..." if argument.rest else "*" if argument.many else "?" if argument.optional else None
        built.takes_anything |= argument.rest
        built.add_argument(argument.name, nargs=nargs, type=argument.parse, help=argument.help)
    if tool.commands:
        commands = built.add_subparsers(
            dest="command", metavar="COMMAND", required=True, parser_class=_ToolParser
        )
        for command in tool.commands:
            nested = commands.add_parser(command.name, help=command.help, description=command.help)
            _add_all(nested, (*command.options, JSON))
    elif tool.speaks_json:
        _add_all(built, (JSON,))
    return built


def parse(tool: Tool, prog: str, arguments: Sequence[str]) -> argparse.Namespace:
    given = parser(tool, prog).parse_args(arguments)
    given.prog = prog
    return given


def _add_all(target: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    for option in options:
        names = [f"--{option.name}", *([option.short] if option.short else [])]
        # argparse reads % in a help text as a conversion.
        text = option.help.replace("%", "%%")
        if option.default not in {None, ""} and option.value:
            text += f" (default: {option.default})"
        if not option.value:
            target.add_argument(*names, action="store_true", help=text, dest=option.attribute)
            continue
        extra: dict[str, Any] = {}
        if option.value_if_bare is not None:
            extra = {"nargs": "?", "const": option.value_if_bare}
        elif option.many:
            extra = {"nargs": "+"}
        if option.choices:
            extra["choices"] = option.choices
        target.add_argument(
            *names,
            help=text + (" (required)" if option.required else ""),
            dest=option.attribute,
            metavar=option.value,
            type=option.parse,
            default=([] if option.repeats else option.default),
            required=option.required,
            action="append" if option.repeats else "store",
            **extra,
        )
