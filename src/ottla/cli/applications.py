"""Streams applications as files: a Python program with a function `build` or a variable `topology`.

What belongs to a program and not to where it runs it says itself: `APPLICATION_ID`, and `ON_ERROR` and
`DEAD_LETTER_TOPIC` for records that it fails on.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import ToolError

if TYPE_CHECKING:
    from ottla.streams import ErrorHandlers, OnError, Topology


@dataclass(frozen=True, slots=True)
class ApplicationFile:
    path: str
    application_id: str
    topology: Topology
    on_error: OnError | str | ErrorHandlers
    dead_letter_topic: str | None


def load_application(path: str, application_id: str | None = None) -> ApplicationFile:
    """`build()` gives a Topology or a StreamsBuilder, or `topology` is one."""
    from ottla.streams import OnError, StreamsBuilder, Topology

    module = _load_module(path)
    found = module.build() if hasattr(module, "build") else getattr(module, "topology", None)
    if isinstance(found, StreamsBuilder):
        found = found.build()
    if not isinstance(found, Topology):
        raise ToolError(
            f"{path}: has no topology; give it a function build() that returns builder.build(), or end it "
            "with topology = builder.build(), where builder is an ottla.streams.StreamsBuilder"
        )
    stem = os.path.splitext(os.path.basename(path))[0].replace("_", "-")
    return ApplicationFile(
        path,
        application_id or str(getattr(module, "APPLICATION_ID", stem)),
        found,
        getattr(module, "ON_ERROR", OnError.FAIL),
        getattr(module, "DEAD_LETTER_TOPIC", None),
    )


def error_policy(
    file: ApplicationFile, on_error: str | None, dead_letter_topic: str | None
) -> tuple[OnError | str | ErrorHandlers, str | None]:
    """What the file says, unless whoever runs it says something else."""
    from ottla.streams import TopologyError
    from ottla.streams.tasks.failures import ErrorPolicy

    topic = dead_letter_topic
    if topic is None and on_error in (None, "dead-letter"):
        topic = file.dead_letter_topic
    chosen = file.on_error if on_error is None else on_error
    try:
        ErrorPolicy.of(chosen, topic)
    except TopologyError as error:
        raise ToolError(f"{file.path}: {error}") from None
    return chosen, topic


def _load_module(path: str) -> Any:
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(f"ottla_application_{name}", path)
    if not path.endswith(".py") or spec is None or spec.loader is None:
        raise ToolError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Modules beside the program can be imported, as if it were run by itself.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    # Dataclasses look their module up while it is being run.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise ToolError(f"{path}: no such file") from None
    except Exception:
        raise ToolError(f"{path}: fails\n{traceback.format_exc(limit=-3).rstrip()}") from None
    return module
