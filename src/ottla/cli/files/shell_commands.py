"""The commands of the metadata shell: what `ls`, `cat` and the others print of a tree."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ottla.cli.files.metadata_tree import Directory, Node

_NARROWEST_COLUMN = 4


@dataclass(slots=True)
class Shell:
    """Where a person is in the tree, and what was typed so far."""

    root: Callable[[], Directory]
    width: int | None = None
    """Of the screen; without one, names are listed one per line."""
    directory: str = "/"
    history: list[str] = field(default_factory=list)

    @property
    def interactive(self) -> bool:
        return self.width is not None


class _Found(NamedTuple):
    path: tuple[str, ...]
    node: Node

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "/"


class _Command(NamedTuple):
    about: str
    run: Callable[[Shell, argparse.Namespace], Iterator[str]]
    shell_only: bool = False
    argument: str = ""
    nargs: str | int | None = None
    argument_help: str = ""


class _Unparsable(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unparsable(message)


def execute(shell: Shell, words: Sequence[str]) -> Iterator[str] | None:
    """The lines that a command prints; None when it was `exit`."""
    given = list(words)
    while given and not given[-1]:
        given.pop()
    if not given:
        return iter(())
    names = [
        name for name, command in sorted(COMMANDS.items()) if shell.interactive or not command.shell_only
    ]
    if given[0] not in names:
        choices = ", ".join(f"'{name}'" for name in names)
        return iter([f"invalid choice: '{given[0]}' (choose from {choices})"])
    if given[0] == "exit":
        return None
    try:
        arguments = _parser(given[0]).parse_args(given[1:])
    except _Unparsable as error:
        return iter([f"{given[0]}: {error}"])
    return COMMANDS[given[0]].run(shell, arguments)


def completions(shell: Shell, line: str) -> list[str]:
    """What the last word of a line may become."""
    words = line.split(" ")
    if len(words) == 1:
        return [name for name in sorted(COMMANDS) if name.startswith(words[0])]
    if words[0] == "man":
        return [name for name in sorted(COMMANDS) if name.startswith(words[-1])]
    head, slash, prefix = words[-1].rpartition("/")
    above = _node(shell.root(), _components(shell, head + slash))
    if not isinstance(above, Directory):
        return []
    found = []
    for name in above.names:
        if name.startswith(prefix):
            mark = "/" if isinstance(above.child(name), Directory) else ""
            found.append(f"{head}{slash}{name}{mark}")
    return found


def _parser(name: str) -> argparse.ArgumentParser:
    command = COMMANDS[name]
    parser = _Parser(prog=name, add_help=False, description=None)
    if command.argument:
        parser.add_argument(command.argument, nargs=command.nargs, help=command.argument_help)
    return parser


def _ls(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    files: list[str] = []
    directories: list[tuple[str, list[str]]] = []
    for target in [target for target in given.targets if target] or ["."]:
        matches = list(_matches(shell, target))
        if not matches:
            yield f"ls: {target}: no such file or directory."
        for found in matches:
            if isinstance(found.node, Directory):
                directories.append((found.name, found.node.names))
            else:
                files.append(found.name)
    yield from _in_columns(files, shell.width)
    titled = bool(files) or len(directories) > 1
    first = not files
    for name, names in directories:
        if names:
            if titled:
                yield f"{name}:" if first else f"\n{name}:"
            yield from _in_columns(names, shell.width)
        first = False


def _in_columns(names: Sequence[str], width: int | None) -> Iterator[str]:
    """As many columns as fit the screen, each filled from top to bottom."""
    if not names:
        return
    lines, widths = len(names), [0]
    for count in range((width or 0) // _NARROWEST_COLUMN, 1, -1):
        height = -(-len(names) // count)
        columns = [names[at : at + height] for at in range(0, len(names), height)]
        needed = [max(map(len, column)) + 2 for column in columns]
        if len(columns) == count and sum(needed) <= (width or 0):
            lines, widths = height, needed
            break
    for line in range(lines):
        cells = names[line::lines]
        yield "".join(cell.ljust(widths[column]) for column, cell in enumerate(cells)).rstrip()


def _cat(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    for target in given.targets:
        matches = list(_matches(shell, target))
        if not matches:
            yield f"cat: {target}: No such file or directory."
        for found in matches:
            yield f"cat: {target}: Is a directory" if isinstance(found.node, Directory) else found.node


def _tree(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    for target in given.targets:
        matches = list(_matches(shell, target))
        if not matches:
            yield f"tree: {target}: No such file or directory."
        for found in matches:
            yield from _indented(found.node, "")


def _indented(node: Node | None, indent: str) -> Iterator[str]:
    if isinstance(node, Directory):
        for name in node.names:
            yield f"{indent}{name}:"
            yield from _indented(node.child(name), f"{indent}  ")
    elif node is not None:
        yield f"{indent}{node}"


def _find(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    for path in [path for path in given.paths if path] or ["."]:
        matches = list(_matches(shell, path))
        if not matches:
            yield f"find: {path}: no such file or directory."
        for found in matches:
            yield from _walk(path, found.node)


def _walk(path: str, node: Node | None) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name in node.names:
            yield from _walk(f"{path}{name}" if path == "/" else f"{path}/{name}", node.child(name))


def _cd(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    target = given.target or "/"
    matches = list(_matches(shell, target))
    if not matches:
        yield f"cd: {target}: no such directory."
    for found in matches:
        if isinstance(found.node, Directory):
            shell.directory = "/" + "/".join(found.path)
        else:
            yield f"cd: {target}: not a directory."


def _pwd(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    yield shell.directory


def _history(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    count = given.numEntriesToShow
    if count is not None and not count.isdecimal():
        yield f"history: {count}: must be a whole number"
        return
    first = 0 if count is None else max(len(shell.history) - int(count), 0)
    for number, line in enumerate(shell.history[first:], first):
        yield f"{number:5d}  {line}"


def _help(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    yield "Welcome to the metadata shell."
    yield ""
    width = max(map(len, COMMANDS)) + 2
    yield from (f"  {name:{width}}{command.about}" for name, command in sorted(COMMANDS.items()))


def _man(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    (name,) = given.cmd
    if name not in COMMANDS:
        yield f"man: unknown command {name}. Type help to get a list of commands."
        return
    yield f"{name}: {COMMANDS[name].about}"
    yield ""
    yield from _parser(name).format_help().rstrip().splitlines()


def _exit(shell: Shell, given: argparse.Namespace) -> Iterator[str]:
    raise AssertionError("execute ends the shell itself")


COMMANDS = {
    "cat": _Command(
        "Show the contents of metadata files.", _cat, False, "targets", "+", "The files to show."
    ),
    "cd": _Command(
        "Set the current working directory.", _cd, True, "target", "?", "The directory to change to."
    ),
    "exit": _Command("Exit the metadata shell.", _exit, True),
    "find": _Command(
        "Search for nodes in the directory hierarchy.", _find, False, "paths", "*", "The paths to start at."
    ),
    "help": _Command("Display this help message.", _help, True),
    "history": _Command(
        "Print command history.", _history, True, "numEntriesToShow", "?", "The number of entries to show."
    ),
    "ls": _Command("List metadata nodes.", _ls, False, "targets", "*", "The paths to list."),
    "man": _Command(
        "Show the help text for a specific command.", _man, True, "cmd", 1, "The command to explain."
    ),
    "pwd": _Command("Print the current working directory.", _pwd, True),
    "tree": _Command(
        "Show the contents of metadata nodes in a tree structure.",
        _tree,
        False,
        "targets",
        "+",
        "The nodes to show.",
    ),
}


def _components(shell: Shell, path: str) -> list[str]:
    full = path if path.startswith("/") else f"{shell.directory}/{path}"
    components: list[str] = []
    for part in full.split("/"):
        if part == "..":
            del components[-1:]
        elif part not in {"", "."}:
            components.append(part)
    return components


def _node(node: Node | None, components: Sequence[str]) -> Node | None:
    for name in components:
        if not isinstance(node, Directory):
            return None
        node = node.child(name)
    return node


def _matches(shell: Shell, pattern: str) -> Iterator[_Found]:
    """All nodes that a path with wildcards names, in order."""
    yield from _below(shell.root(), _components(shell, pattern), ())


def _below(node: Node, components: Sequence[str], path: tuple[str, ...]) -> Iterator[_Found]:
    if not components:
        yield _Found(path, node)
        return
    if not isinstance(node, Directory):
        return
    expression = glob_expression(components[0])
    names = (
        [components[0]] if expression is None else [name for name in node.names if expression.fullmatch(name)]
    )
    for name in names:
        child = node.child(name)
        if child is not None:
            yield from _below(child, components[1:], (*path, name))


def glob_expression(glob: str) -> re.Pattern[str] | None:
    """`*`, `?` and `{a,b}` stand for others; None for a plain name, or a glob that makes no sense."""
    parts: list[str] = []
    is_plain = True
    in_group = False
    characters = iter(glob)
    for character in characters:
        match character:
            case "?" | "*":
                is_plain = False
                parts.append("." if character == "?" else ".*")
            case "\\":
                parts.append(re.escape(next(characters, "\\")))
            case "{":
                if in_group:
                    return None
                is_plain, in_group = False, True
                parts.append("(?:")
            case "," if in_group:
                parts.append("|")
            case "}" if in_group:
                in_group = False
                parts.append(")")
            case _:
                parts.append(re.escape(character))
    return None if is_plain or in_group else re.compile("".join(parts))
