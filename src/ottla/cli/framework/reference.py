"""Writes the pages of docs/reference/tools from the declarations of the tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from ottla.cli.framework import catalogue
from ottla.cli.framework.tool import JSON, Option, Tool

_MADE = "<!-- Made by `python -m ottla.cli.framework.reference docs/reference/tools`. Do not edit. -->"
_INTRO = """\
Every tool is a command of `ottla` and also an executable with the name of Kafka's: `ottla topics`,
`kafka-topics` and `kafka-topics.sh` are the same. They work against Apache Kafka, too. In a pipe they print
what Kafka's tools print; on a terminal, tables; with `--json`, JSON. Those that produce or consume, and
tables, need `pip install 'ottla[tools]'`.
"""


def pages() -> dict[str, str]:
    """Texts by file name."""
    found = {f"{name}.md": "\n".join(_page(name)) + "\n" for name in catalogue.NAMES}
    found["README.md"] = "\n".join(_index()) + "\n"
    return found


def _index() -> Iterator[str]:
    yield f"# Tools\n\n{_MADE}\n\n{_INTRO}"
    for purpose, tools in catalogue.PURPOSES.items():
        yield f"## {purpose}\n"
        for name, summary in tools.items():
            yield f"- [`{name}`]({name}.md): {summary}"
        yield ""


def _page(name: str) -> Iterator[str]:
    tool = catalogue.load(name)
    title = f"ottla {name}" if name in catalogue.OWN else catalogue.executable(name)
    yield f"# {title}\n\n{_MADE}\n\n{tool.description}\n"
    yield from _usage(tool, title)
    if tool.arguments:
        yield "## Arguments\n"
        yield from (f"- `{argument.name}`: {argument.help}" for argument in tool.arguments)
        yield ""
    if tool.options or not tool.commands:
        yield "## Options\n"
        yield from _options((*tool.options, *((JSON,) if tool.speaks_json and not tool.commands else ())))
    for command in tool.commands:
        yield f"## {command.name}\n\n{command.help[0].upper()}{command.help[1:]}.\n"
        yield from _options((*command.options, JSON))
    if tool.notes:
        yield f"## Notes\n\n{tool.notes}"


def _usage(tool: Tool, title: str) -> Iterator[str]:
    if tool.examples:
        yield "```console"
        yield from (f"$ {title} {example}".rstrip() for example in tool.examples)
        yield "```\n"


def _options(options: Iterable[Option]) -> Iterator[str]:
    yield "| Option | Meaning |\n| --- | --- |"
    for option in options:
        names = f"`--{option.name}{' ' + option.value if option.value else ''}`"
        if option.short:
            names = f"`{option.short}`, {names}"
        notes = " (required)" if option.required else ""
        if option.default not in {None, ""}:
            notes += f" (default `{option.default}`)"
        text = f"{option.help}{notes}".replace("|", "\\|")
        yield f"| {names} | {text} |"
    yield ""


def main(directory: str) -> None:
    import os

    os.makedirs(directory, exist_ok=True)
    for name, text in pages().items():
        with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
