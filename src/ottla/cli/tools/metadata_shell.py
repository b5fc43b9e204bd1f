"""`kafka-metadata-shell`: the metadata of a cluster to walk through, from a snapshot or a data directory."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Argument, Option, Tool

if TYPE_CHECKING:
    from ottla.cli.files.shell_commands import Shell

_PROMPT = ">> "


def run(given: argparse.Namespace) -> int:
    from ottla.cli.files.metadata_source import MetadataSource
    from ottla.cli.files.metadata_tree import root
    from ottla.cli.files.shell_commands import Shell, execute

    if (given.snapshot is None) == (given.directory is None):
        raise ToolError("give either --snapshot or --directory")
    source = MetadataSource(given.snapshot or given.directory)
    shell = Shell(lambda: root(source.current()))
    if given.command:
        lines = list(execute(shell, given.command) or ())
        show(given, lines, lines)
        return 0
    print("Loading...")
    source.current()
    print("Starting...")
    shell.width = shutil.get_terminal_size().columns
    _interact(shell)
    return 0


def _interact(shell: Shell) -> None:
    from ottla.cli.files.shell_commands import execute

    print("[ Ottla Metadata Shell ]")
    with contextlib.suppress(ImportError):
        _complete_with_tab(shell)
    while True:
        try:
            line = input(_PROMPT).strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("^C")
            continue
        if line:
            shell.history.append(line)
        try:
            words = shlex.split(line)
        except ValueError as error:
            print(f"{line}: {error}")
            continue
        shell.width = shutil.get_terminal_size().columns
        try:
            lines = execute(shell, words)
            if lines is None:
                return
            for shown in lines:
                print(shown)
        except ToolError as error:
            # What is being looked at may change or go away meanwhile.
            print(error)
        sys.stdout.flush()


def _complete_with_tab(shell: Shell) -> None:
    import readline

    from ottla.cli.files.shell_commands import completions

    def complete(text: str, state: int) -> str | None:
        with contextlib.suppress(ToolError):
            found = completions(shell, readline.get_line_buffer()[: readline.get_endidx()])
            if state < len(found):
                # A directory goes on; anything else is complete.
                return found[state] if found[state].endswith("/") else f"{found[state]} "
        return None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


TOOL = Tool(
    name="metadata-shell",
    description=(
        "Walk through the metadata of a cluster as through files: topics, brokers, settings, features.\n"
        "Commands: ls, cat, tree, find; and in the shell cd, pwd, man, help, history, exit."
    ),
    run=run,
    options=(
        Option("snapshot", "a snapshot or a segment of the metadata log", "FILE", short="-s"),
        Option("directory", "a data directory instead; its broker may be running", "DIR", short="-d"),
    ),
    arguments=(Argument("command", "a command to run instead of the shell", many=True),),
    examples=(
        "--snapshot /var/ottla/__cluster_metadata-0/00000000000000000000.log",
        "--directory /var/ottla tree /image/topics/byName/orders",
    ),
)
