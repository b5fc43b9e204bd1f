"""`ottla examples`: copies the programs that come with Ottla, to be run and changed."""

from __future__ import annotations

import argparse
import os
import shutil

import ottla
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import show
from ottla.cli.framework.tool import Argument, Tool


def run(given: argparse.Namespace) -> int:
    if os.path.exists(given.directory) and (
        not os.path.isdir(given.directory) or os.listdir(given.directory)
    ):
        raise ToolError(f"{given.directory}: is there already; name a directory that is empty, or not there")
    shutil.copytree(
        _source(),
        given.directory,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "node_modules", "ottla-data"),
    )
    files = sorted(
        os.path.join(directory, name) for directory, _, names in os.walk(given.directory) for name in names
    )
    show(given, files, files)
    return 0


def _source() -> str:
    """In a wheel they are part of the package; in a clone they are where people look for them."""
    package = os.path.dirname(ottla.__file__)
    for directory in (f"{package}/examples", f"{package}/../../examples"):
        if os.path.isdir(directory):
            return directory
    raise ToolError(f"{package}/examples: is not there; install Ottla again")


TOOL = Tool(
    name="examples",
    description="Copy the examples that come with Ottla to a directory.",
    run=run,
    arguments=(Argument("directory", "where they go; made if it is not there"),),
    options=(),
    examples=("ottla-examples",),
)
