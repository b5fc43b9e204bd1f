"""`ottla completion`: a script that teaches a shell the tools and their options."""

from __future__ import annotations

import argparse

from ottla.cli.framework import catalogue
from ottla.cli.framework.tool import Argument, Option, Tool

_BASH = """\
_ottla() {{
    local tool="${{COMP_WORDS[0]##*/}}" current="${{COMP_WORDS[COMP_CWORD]}}"
    tool="${{tool%.sh}}"
    if [[ $tool == ottla ]]; then
        if (( COMP_CWORD == 1 )); then
            COMPREPLY=($(compgen -W "{names}" -- "$current"))
            return
        fi
        tool="${{COMP_WORDS[1]}}"
    fi
    case "${{tool#kafka-}}" in
{cases}
    esac
}}
complete -o default -F _ottla ottla {executables}
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def run(given: argparse.Namespace) -> int:
    print({"bash": _bash, "zsh": lambda: _ZSH + _bash(), "fish": _fish}[given.shell](), end="")
    return 0


def _bash() -> str:
    cases = [
        f'        {name}) COMPREPLY=($(compgen -W "{" ".join(_words(name))}" -- "$current"));;'
        for name in catalogue.NAMES
    ]
    return _BASH.format(
        names=" ".join(catalogue.NAMES), cases="\n".join(cases), executables=" ".join(_executables())
    )


def _fish() -> str:
    lines = []
    for purpose in catalogue.PURPOSES.values():
        for name, summary in purpose.items():
            lines.append(f"complete -c ottla -n __fish_use_subcommand -f -a {name} -d '{summary}'")
    for name in catalogue.NAMES:
        tool = catalogue.load(name)
        for command in tool.commands:
            lines += [
                f"complete -c {target} -f -a {command.name} -d '{_quoted(command.help)}'"
                for target in _targets(name)
            ]
        for option in _options(tool):
            takes = " -r" if option.value else ""
            lines += [
                f"complete -c {target} -l {option.name}{takes} -d '{_quoted(option.help)}'"
                for target in _targets(name)
            ]
    return "\n".join(lines) + "\n"


def _targets(name: str) -> list[str]:
    own = f"ottla -n '__fish_seen_subcommand_from {name}'"
    executable = catalogue.executable(name)
    return [own] if name in catalogue.OWN else [own, executable, f"{executable}.sh"]


def _words(name: str) -> list[str]:
    tool = catalogue.load(name)
    return [*(command.name for command in tool.commands), *(f"--{option.name}" for option in _options(tool))]


def _options(tool: Tool) -> list[Option]:
    """Of the tool and its commands, each once."""
    found = {option.name: option for option in tool.options}
    for command in tool.commands:
        found.update({option.name: option for option in command.options})
    return list(found.values())


def _executables() -> list[str]:
    return [name for executable in catalogue.EXECUTABLES for name in (executable, f"{executable}.sh")]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _shell(text: str) -> str:
    if text not in {"bash", "zsh", "fish"}:
        raise argparse.ArgumentTypeError(f"{text}: must be bash, zsh or fish")
    return text


TOOL = Tool(
    name="completion",
    description="Print a completion script for a shell, to be sourced: bash, zsh or fish.",
    run=run,
    arguments=(Argument("shell", "bash, zsh or fish", _shell),),
    options=(),
    examples=("bash > ~/.local/share/bash-completion/completions/ottla",),
)
