"""What was probably meant by a command or an option that there is not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`; did you mean topics?`, or just the end of the sentence where no name is near."""
    import difflib

    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else "."


class Parser(argparse.ArgumentParser):
    """Complains in one line, which names an option that was probably meant, and ends with `status`."""

    status = 2
    takes_anything = False
    """Whether options that it does not know are meant for somebody else."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(self.status)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Before argparse looks: it would ask for the required option that was mistyped.
        if not self.takes_anything:
            self._refuse_unknown(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _refuse_unknown(self, arguments: Sequence[str]) -> None:
        known = list(self._option_string_actions)
        commands = self._commands()
        for argument in arguments:
            if argument == "--":
                return
            if argument in commands:
                # The rest is the command's own, which looks for itself.
                return
            name = argument.partition("=")[0]
            if not name.startswith("--") or any(option.startswith(name) for option in known):
                continue
            hint = did_you_mean(name, known)
            print(f"{self.prog}: there is no option {name}{hint} See {self.prog} --help", file=sys.stderr)
            raise SystemExit(self.status)

    def _commands(self) -> Iterable[str]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return list(action.choices)
        return ()
