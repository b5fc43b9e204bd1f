"""The manifest of an application: which queries it had when it last started, and from where each began.

It lies beside the checkpoints. Each time a query has to begin anew, it gets another checkpoint: its next
generation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.spark.engine import HadoopFiles
from ottla.spark.positions import Offsets, from_stored, to_stored
from ottla.streams.application.shapes import QueryShape
from ottla.streams.errors import StreamsError

NAME = "queries.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Generation:
    """A query from one beginning on."""

    shape: QueryShape
    number: int = 0
    # Where it begins instead of where the configuration says.
    begin: Offsets = field(default_factory=dict)
    # Ends of the changelogs that had the state of then.
    restored: Offsets = field(default_factory=dict)
    # Stores whose changelog was deleted since: it has the changes from then on only.
    incomplete: tuple[str, ...] = ()


Manifest = dict[str, Generation]


def to_text(manifest: Mapping[str, Generation]) -> str:
    queries = {
        label: {
            "generation": each.number,
            "shape": each.shape.to_json(),
            "begin": to_stored(each.begin),
            "restored": to_stored(each.restored),
            "incomplete": each.incomplete,
        }
        for label, each in sorted(manifest.items())
    }
    return json.dumps({"version": _VERSION, "queries": queries}, indent=1)


def from_text(text: str, place: str) -> Manifest:
    try:
        data = json.loads(text)
        if data["version"] != _VERSION:
            raise StreamsError(
                f"{place} is of version {data['version']}; this Ottla knows version {_VERSION}"
            )
        return {
            label: Generation(
                QueryShape.from_json(each["shape"]),
                each["generation"],
                from_stored(each["begin"]),
                from_stored(each["restored"]),
                tuple(each.get("incomplete", ())),
            )
            for label, each in data["queries"].items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise StreamsError(
            f"{place} cannot be read ({error!r}): restore it, or start the application anew "
            "(streams-application-reset)"
        ) from error


class StateDirectory:
    """The directory of an application: local, or wherever Spark can reach, once there is a session."""

    def __init__(self, location: str, session: Any = None) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self._session = session

    @property
    def is_local(self) -> bool:
        return "://" not in self.location

    def read(self, name: str) -> str | None:
        if self.is_local:
            try:
                with open(f"{self.location}/{name}") as file:
                    return file.read()
            except FileNotFoundError:
                return None
        files = HadoopFiles(self._session)
        path = files.path(f"{self.location}/{name}")
        return files.read(path) if files.system(path).exists(path) else None

    def write(self, name: str, text: str) -> None:
        """Whoever reads it meanwhile sees the old text or the new one."""
        if self.is_local:
            os.makedirs(self.location, exist_ok=True)
            path = f"{self.location}/{name}"
            with open(f"{path}.new", "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.new", path)
            return
        files = HadoopFiles(self._session)
        files.write(files.path(f"{self.location}/{name}"), text)

    def is_empty(self, name: str) -> bool:
        """Whether a directory in it has nothing in it, or is not there."""
        if self.is_local:
            path = f"{self.location}/{name}"
            return not os.path.isdir(path) or not os.listdir(path)
        files = HadoopFiles(self._session)
        remote = files.path(f"{self.location}/{name}")
        system = files.system(remote)
        return not system.exists(remote) or len(system.listStatus(remote)) == 0
